"""The tables of the ledger: how they are computed, and kept on disk."""
