"""Shared access policies of an entity in XML: its authorization rules."""

from typing import Final

from pairbus.broker.access.policies import Policies, Policy, Right
from pairbus.broker.admin.documents import tag, text
from pairbus.broker.admin.problems import bad_request, bad_value
from pairbus.broker.admin.xml import Element

RULE: Final = "AuthorizationRule"
_KIND: Final = "SharedAccessAuthorizationRule"
_PARTS: Final = (
    "ClaimType",
    "ClaimValue",
    "Rights",
    "CreatedTime",
    "ModifiedTime",
    "KeyName",
    "PrimaryKey",
    "SecondaryKey",
)


def read_policies(element: Element) -> Policies:
    """Read the policies of an entity; keys that are not given are made. No error shows a key."""
    return tuple(_read(child) for child in element)


def write_policies(policies: Policies) -> str:
    """Write the policies of an entity, with their keys, as the cloud does for those who may manage it."""
    return "".join(map(_write, policies))


def _read(element: Element) -> Policy:
    if element.name != RULE:
        raise bad_request(f"The element '{element.name}' is not expected in 'AuthorizationRules'.")
    if element.type != _KIND:
        raise bad_value(RULE, element.type, f"a {_KIND}")
    for child in element:
        if child.name not in _PARTS:
            raise bad_request(f"The element '{child.name}' is not expected in '{RULE}'.")
    name = element.find("KeyName")
    given = {
        argument: key.text
        for argument, key in (
            ("primary_key", element.find("PrimaryKey")),
            ("secondary_key", element.find("SecondaryKey")),
        )
        if key is not None and key.text
    }
    return Policy("" if name is None else name.text, tuple(map(_right, element.find("Rights") or ())), **given)


def _right(element: Element) -> Right:
    try:
        return Right(element.text)
    except ValueError:
        raise bad_value("Rights", element.text, "one of " + ", ".join(Right)) from None


def _write(policy: Policy) -> str:
    content = (
        tag("ClaimType", "SharedAccessKey")
        + tag("ClaimValue", "None")
        + tag("Rights", "".join(tag("AccessRights", right) for right in policy.rights))
        + tag("KeyName", text(policy.name))
        + tag("PrimaryKey", text(policy.primary_key))
        + tag("SecondaryKey", text(policy.secondary_key))
    )
    return f'<{RULE} i:type="{_KIND}">{content}</{RULE}>'
