"""The report: what the tables say, as a summary and as a page."""
