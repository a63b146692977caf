"""The data pipeline: the syphon at scale, the connector, and the analytics of the ledger."""
