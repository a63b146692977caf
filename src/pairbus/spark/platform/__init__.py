"""Spark itself: Java, sessions, versions, files."""
