"""What a link can attach to."""
