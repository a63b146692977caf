"""Fast paths of the native client, each beside the measurement that pays for it."""
