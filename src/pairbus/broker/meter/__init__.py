"""What the broker counts and tells of itself."""
