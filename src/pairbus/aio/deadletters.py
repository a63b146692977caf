"""The public name of :mod:`pairbus.operate.deadletters`."""

from pairbus.operate.deadletters import Choice, Letter, Outcome, Shelf, browse_letters, discard, remove, resubmit

__all__ = ["Choice", "Letter", "Outcome", "Shelf", "browse_letters", "discard", "remove", "resubmit"]
