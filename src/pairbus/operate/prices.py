"""Reads price lists from files; what is in one is told by :mod:`pairbus.core.pricing`."""

from importlib import resources
from pathlib import Path

from pairbus.core.pricing import Plan, parse_prices
from pairbus.errors import OptionError, PricesError


def read_plan(name: str = "standard", file: Path | None = None) -> Plan:
    """Return a plan of a price file.

    :param file: a file of your own, in TOML; None: the list prices that come with pairbus.
    :raises PricesError: the file is no price file.
    :raises OptionError: there is no such plan in it.
    """
    source = file or resources.files("pairbus.core").joinpath("prices.toml")
    try:
        plans = parse_prices(source.read_text(encoding="utf-8"))
    except (PricesError, UnicodeDecodeError) as error:
        raise PricesError(f"{source}: {error}") from None
    if name not in plans:
        raise OptionError("plan", name, "one of " + ", ".join(sorted(plans)))
    return plans[name]
