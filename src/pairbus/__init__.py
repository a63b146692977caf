"""pairbus keeps an application's message sends available while its broker is not."""

from typing import TYPE_CHECKING

__all__ = ["NamespaceManager"]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from pairbus.manager import NamespaceManager
else:

    def __getattr__(name: str) -> object:
        """Import what needs the SDK when it is asked for: the command line and the rules do without."""
        if name == "NamespaceManager":
            from pairbus.manager import NamespaceManager  # noqa: PLC0415

            return NamespaceManager
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
