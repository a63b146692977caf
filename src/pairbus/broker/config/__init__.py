"""What a broker is to serve."""
