"""The ``pairbus`` command."""
