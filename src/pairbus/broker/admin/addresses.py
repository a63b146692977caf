"""What the path of a request is about."""

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

_RESOURCES: Final = re.compile(r"\$resources/(queues|topics)", re.IGNORECASE)
_BELOW: Final = re.compile(
    r"(?P<topic>.+?)/subscriptions(?:/(?P<subscription>[^/]+)(?P<rules>/rules(?:/(?P<rule>[^/]+))?)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class NamespaceAddress:
    """The namespace itself."""


@dataclass(frozen=True, slots=True)
class EntityAddress:
    """A queue or a topic: only the namespace knows which."""

    path: str


@dataclass(frozen=True, slots=True)
class SubscriptionAddress:
    """A subscription."""

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class RuleAddress:
    """A rule."""

    topic: str
    subscription: str
    name: str


@dataclass(frozen=True, slots=True)
class Listing:
    """All queues, all topics, all subscriptions of a topic, or all rules of a subscription.

    :ivar kind: which of them.
    """

    kind: str
    topic: str = ""
    subscription: str = ""


Address: TypeAlias = NamespaceAddress | EntityAddress | SubscriptionAddress | RuleAddress | Listing


def address_of(path: str) -> Address:
    """Tell what a path is about; names keep their case."""
    path = path.strip("/")
    if path.lower() == "$namespaceinfo":
        return NamespaceAddress()
    if match := _RESOURCES.fullmatch(path):
        return Listing(match[1].capitalize())
    match = _BELOW.fullmatch(path)
    if match is None:
        return EntityAddress(path)
    topic, subscription, rule = match["topic"], match["subscription"], match["rule"]
    if subscription is None:
        return Listing("Subscriptions", topic)
    if match["rules"] is None:
        return SubscriptionAddress(topic, subscription)
    return Listing("Rules", topic, subscription) if rule is None else RuleAddress(topic, subscription, rule)
