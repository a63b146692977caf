"""Calling back those who wait for a journal."""

import logging

from pairbus.broker.store.base import Journal, StoreError

_logger = logging.getLogger(__name__)


def call_back(journal: Journal, error: StoreError | None) -> None:
    """Tell everybody who waits for the journal, in order. One who raises does not keep the others waiting."""
    for durable in journal.durable:
        try:
            durable(error)
        except Exception:  # the others wait for what is durable all the same
            _logger.exception("a callback of the store has failed")
