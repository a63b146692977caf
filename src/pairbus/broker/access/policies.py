"""Shared access policies: a name, rights and two keys, of a namespace or of one of its entities."""

import base64
import enum
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from pairbus.errors import OptionError

ROOT: Final = "RootManageSharedAccessKey"
"""The policy that every namespace has, with all rights."""
MAX_POLICIES: Final = 12
"""Policies of one namespace, and of one entity."""
MAX_TEXT: Final = 256
"""Characters of a name, and of a key."""
KEY_BYTES: Final = 32


class Right(enum.StrEnum):
    """What a policy lets its holders do; Manage is all three."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL: Final = (Right.SEND, Right.LISTEN, Right.MANAGE)


def new_key() -> str:
    """Make a key as the cloud does: 256 random bits, base64."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


@dataclass(frozen=True, slots=True)
class Policy:
    """A shared access policy; keys that are not given are made. Neither its text nor its errors show a key."""

    name: str
    rights: tuple[Right, ...]
    primary_key: str = field(default_factory=new_key, repr=False)
    secondary_key: str = field(default_factory=new_key, repr=False)

    def __post_init__(self) -> None:
        if not 0 < len(self.name) <= MAX_TEXT or not self.name.isprintable():
            raise OptionError("policy", self.name, f"a name of 1 to {MAX_TEXT} printable characters")
        object.__setattr__(self, "rights", as_rights(self.name, self.rights))
        for key in (self.primary_key, self.secondary_key):
            if not 0 < len(key) <= MAX_TEXT or not key.isascii() or ";" in key:
                raise OptionError(
                    f"policy {self.name}", "a key that is not shown", f"1 to {MAX_TEXT} ASCII characters, no semicolon"
                )

    @property
    def keys(self) -> tuple[str, str]:
        """Both keys; each of them is as good as the other."""
        return self.primary_key, self.secondary_key


Policies: TypeAlias = tuple[Policy, ...]
"""The policies of one namespace, or of one entity."""


def checked(policies: Iterable[Policy]) -> Policies:
    """Return policies if they can be those of one namespace or entity, or refuse."""
    made = tuple(policies)
    names = [policy.name for policy in made]
    for name in names:
        if names.count(name) > 1:
            raise OptionError("policy", name, "there is one of this name already")
    if len(made) > MAX_POLICIES:
        raise OptionError("policies", len(made), f"{MAX_POLICIES} at most")
    return made


def find(policies: Policies, name: str) -> Policy:
    """Return the policy of a name, or refuse."""
    for policy in policies:
        if policy.name == name:
            return policy
    known = ", ".join(policy.name for policy in policies) or "none"
    raise OptionError("policy", name, f"one that is there: {known}")


def without(policies: Policies, name: str) -> Policies:
    """Return the other policies; there must be one of this name."""
    gone = find(policies, name)
    return tuple(policy for policy in policies if policy is not gone)


def rotated(policies: Policies, name: str, key: str, *, secondary: bool) -> Policies:
    """Return the policies with another key in the place of a policy's primary, or secondary, one."""
    old = find(policies, name)
    new = replace(old, secondary_key=key) if secondary else replace(old, primary_key=key)
    return tuple(new if policy is old else policy for policy in policies)


def as_rights(name: str, rights: Iterable[str]) -> tuple[Right, ...]:
    """Return the rights of a policy as they are kept, or refuse what is none."""
    if isinstance(rights, str):
        raise OptionError(f"policy {name}: rights", rights, "a list of " + ", ".join(ALL))
    given = set(rights)
    unknown = given - set(ALL)
    if unknown or not given:
        raise OptionError(f"policy {name}: rights", sorted(map(str, given)), "one or more of " + ", ".join(ALL))
    return ALL if Right.MANAGE in given else tuple(right for right in ALL if right in given)
