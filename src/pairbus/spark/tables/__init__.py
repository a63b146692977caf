"""The tables of the ledger: how they are computed, and kept on disk."""

from pairbus.spark.tables.ledger_tables import Tables

__all__ = ["Tables"]
