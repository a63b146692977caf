"""Policies as JSON, in a configuration file and in the file in which a namespace keeps its own.

.. code-block:: json

    [{"Name": "checkout", "Rights": ["Send"], "PrimaryKey": "…", "SecondaryKey": "…"}]

Keys may be left out: they are made. No error shows one.
"""

from collections.abc import Sequence
from typing import Any, Final, cast

from pairbus.broker.access.policies import Policies, Policy, Right, as_rights, checked
from pairbus.errors import OptionError

ENTRY: Final = "SharedAccessPolicies"
_KEYS: Final = {"PrimaryKey": "primary_key", "SecondaryKey": "secondary_key"}


def to_entries(policies: Policies) -> list[dict[str, Any]]:
    """Return what :func:`from_entries` reads, keys and all."""
    return [
        {
            "Name": policy.name,
            "Rights": list(policy.rights),
            "PrimaryKey": policy.primary_key,
            "SecondaryKey": policy.secondary_key,
        }
        for policy in policies
    ]


def from_entries(entries: object, where: str) -> Policies:
    """Read policies; ``where`` is what an error calls the list."""
    if not isinstance(entries, list):
        raise OptionError(where, type(entries).__name__, "a list of policies")
    listed = cast("Sequence[object]", entries)
    return checked(_policy(entry, f"{where}[{index}]") for index, entry in enumerate(listed))


def _policy(entry: object, where: str) -> Policy:
    if not isinstance(entry, dict):
        raise OptionError(where, type(entry).__name__, "an object with Name and Rights")
    table = cast("dict[str, object]", entry)
    unknown = sorted(set(table) - {"Name", "Rights", *_KEYS})
    if unknown:
        raise OptionError(where, unknown, "Name, Rights, PrimaryKey, SecondaryKey")
    name, rights = table.get("Name"), table.get("Rights")
    if not isinstance(name, str):
        raise OptionError(f"{where}.Name", name, "a name")
    if not isinstance(rights, list):
        raise OptionError(f"{where}.Rights", rights, "a list of " + ", ".join(Right))
    keys: dict[str, str] = {}
    for field, argument in _KEYS.items():
        key = table.get(field, "")
        if not isinstance(key, str):
            raise OptionError(f"{where}.{field}", type(key).__name__, "a text")
        if key:
            keys[argument] = key
    return Policy(name, as_rights(name, map(str, cast("list[object]", rights))), **keys)
