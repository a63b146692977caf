"""Settings of queues, topics and subscriptions, with the cloud's defaults and limits. Durations are milliseconds."""

import enum
import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from pairbus.broker.access.policies import Policies, Policy, checked
from pairbus.errors import OptionError

SECOND = 1000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
MAX_PATH = 260
MAX_NAME = 50
"""Characters of the name of a subscription, or of a rule."""


class EntityStatus(enum.StrEnum):
    """What an entity may be used for."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def takes_messages(self) -> bool:
        """Whether messages can be sent to it."""
        return self in _TAKING

    @property
    def gives_messages(self) -> bool:
        """Whether messages can be received from it."""
        return self in _GIVING


_TAKING: Final = (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)
_GIVING: Final = (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings as JSON, and back."""

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read settings back."""
        values: dict[str, Any] = json.loads(text)
        if "authorization_rules" in values:
            values["authorization_rules"] = [Policy(**rule) for rule in values["authorization_rules"]]
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings(_Settings):
    """The settings of a queue.

    :ivar default_message_time_to_live: what a message has at most; None: no limit.
    :ivar authorization_rules: policies whose keys give access to this queue only, besides those of the namespace.
    :ivar auto_delete_on_idle: after how long without any use the queue deletes itself; None: never.
    :ivar enable_partitioning: kept as it is told; a queue is in one piece either way.
    :ivar enable_express: kept as it is told; messages are stored before a send is answered either way.
    """

    lock_duration: int = MINUTE
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: int | None = None
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: int = 10 * MINUTE
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: int | None = None
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int = 256
    user_metadata: str | None = None
    enable_partitioning: bool = False
    enable_express: bool = False
    authorization_rules: Policies = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", EntityStatus(self.status))
        object.__setattr__(self, "authorization_rules", checked(self.authorization_rules))
        _check_receiving(self)
        _check_sending(self)
        _check_times(self)

    @property
    def max_bytes(self) -> int:
        """How many bytes the queue takes."""
        return self.max_size_in_megabytes * 1024 * 1024

    @property
    def max_message_bytes(self) -> int:
        """How many bytes a message may have."""
        return self.max_message_size_in_kilobytes * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings(_Settings):
    """The settings of a topic.

    :ivar default_message_time_to_live: what a message has at most; None: no limit.
    :ivar authorization_rules: policies whose keys give access to this topic and its subscriptions only, besides those
        of the namespace.
    :ivar auto_delete_on_idle: after how long without any use of it or its subscriptions the topic deletes itself;
        None: never.
    :ivar enable_partitioning: kept as it is told; a topic is in one piece either way.
    :ivar enable_express: kept as it is told; messages are stored before a send is answered either way.
    :ivar support_ordering: kept as it is told; messages are in order either way.
    """

    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    default_message_time_to_live: int | None = None
    duplicate_detection_history_time_window: int = 10 * MINUTE
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: int | None = None
    support_ordering: bool = True
    max_message_size_in_kilobytes: int = 256
    user_metadata: str | None = None
    enable_partitioning: bool = False
    enable_express: bool = False
    authorization_rules: Policies = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", EntityStatus(self.status))
        object.__setattr__(self, "authorization_rules", checked(self.authorization_rules))
        _check_sending(self)
        _check_times(self)

    @property
    def max_message_bytes(self) -> int:
        """How many bytes a message may have."""
        return self.max_message_size_in_kilobytes * 1024

    def for_intake(self) -> QueueSettings:
        """Return what decides which messages the topic takes, in the words of a queue."""
        return QueueSettings(
            max_size_in_megabytes=self.max_size_in_megabytes,
            requires_duplicate_detection=self.requires_duplicate_detection,
            default_message_time_to_live=self.default_message_time_to_live,
            duplicate_detection_history_time_window=self.duplicate_detection_history_time_window,
            status=self.status,
            max_message_size_in_kilobytes=self.max_message_size_in_kilobytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings(_Settings):
    """The settings of a subscription.

    :ivar default_message_time_to_live: what a message has at most, unless the topic has less; None: no limit.
    :ivar dead_lettering_on_filter_evaluation_exceptions: whether a message that a filter cannot be evaluated for goes
        to the dead-letter queue, or passes the subscription by.
    :ivar auto_delete_on_idle: after how long without any use the subscription deletes itself; None: never.
    """

    lock_duration: int = MINUTE
    requires_session: bool = False
    default_message_time_to_live: int | None = None
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: int | None = None
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", EntityStatus(self.status))
        _check_receiving(self)
        _check_times(self)

    def for_queue(self, topic: TopicSettings) -> QueueSettings:
        """Return the settings of the queue in which the subscription of a topic keeps its messages."""
        is_closed = not topic.status.gives_messages  # nothing is received from a subscription to a disabled topic
        return QueueSettings(
            lock_duration=self.lock_duration,
            requires_session=self.requires_session,
            default_message_time_to_live=self.default_message_time_to_live,
            dead_lettering_on_message_expiration=self.dead_lettering_on_message_expiration,
            max_delivery_count=self.max_delivery_count,
            status=EntityStatus.DISABLED if is_closed else self.status,
            auto_delete_on_idle=self.auto_delete_on_idle,
            forward_to=self.forward_to,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to,
            max_size_in_megabytes=topic.max_size_in_megabytes,
            max_message_size_in_kilobytes=topic.max_message_size_in_kilobytes,
        )


def _check_receiving(settings: QueueSettings | SubscriptionSettings) -> None:
    _between("lock_duration", settings.lock_duration, 5 * SECOND, 5 * MINUTE)
    _between("max_delivery_count", settings.max_delivery_count, 1, 2**31 - 1)
    if settings.requires_session and settings.forward_to is not None:
        raise OptionError("forward_to", settings.forward_to, "an entity that requires sessions cannot forward")


def _check_sending(settings: QueueSettings | TopicSettings) -> None:
    _between("max_size_in_megabytes", settings.max_size_in_megabytes, 1, 80 * 1024)
    _between("max_message_size_in_kilobytes", settings.max_message_size_in_kilobytes, 1, 100 * 1024)
    window = settings.duplicate_detection_history_time_window
    _between("duplicate_detection_history_time_window", window, 20 * SECOND, 7 * DAY)


def _check_times(settings: QueueSettings | TopicSettings | SubscriptionSettings) -> None:
    if settings.default_message_time_to_live is not None:
        _between("default_message_time_to_live", settings.default_message_time_to_live, SECOND, 2**63)
    if settings.auto_delete_on_idle is not None:
        _between("auto_delete_on_idle", settings.auto_delete_on_idle, 5 * MINUTE, 2**63)


def _between(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise OptionError(option, value, f"{low} to {high}")
