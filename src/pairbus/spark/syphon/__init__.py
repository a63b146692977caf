"""The syphon as a Spark job."""
