"""Fast paths of the codec: they accept what the general decoder accepts, and are measured beside it."""
