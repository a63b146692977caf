"""The settings of a queue, with the cloud's defaults and limits. Durations are milliseconds."""

import enum
import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from pairbus.broker.auth.policies import Policies, Policy, checked
from pairbus.errors import OptionError

SECOND = 1000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
MAX_PATH = 260


class EntityStatus(enum.StrEnum):
    """What an entity may be used for."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def takes_messages(self) -> bool:
        """Whether messages can be sent to it."""
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def gives_messages(self) -> bool:
        """Whether messages can be received from it."""
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of a queue.

    :ivar default_message_time_to_live: what a message has at most; None: no limit.
    :ivar authorization_rules: policies whose keys give access to this queue only, besides those of the namespace.
    :ivar auto_delete_on_idle: after how long without any use the queue deletes itself; None: never.
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
    authorization_rules: Policies = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", EntityStatus(self.status))
        object.__setattr__(self, "authorization_rules", checked(self.authorization_rules))
        _between("lock_duration", self.lock_duration, 5 * SECOND, 5 * MINUTE)
        _between("max_size_in_megabytes", self.max_size_in_megabytes, 1, 80 * 1024)
        _between("max_delivery_count", self.max_delivery_count, 1, 2**31 - 1)
        _between("max_message_size_in_kilobytes", self.max_message_size_in_kilobytes, 1, 100 * 1024)
        window = self.duplicate_detection_history_time_window
        _between("duplicate_detection_history_time_window", window, 20 * SECOND, 7 * DAY)
        if self.default_message_time_to_live is not None:
            _between("default_message_time_to_live", self.default_message_time_to_live, SECOND, 2**63)
        if self.auto_delete_on_idle is not None:
            _between("auto_delete_on_idle", self.auto_delete_on_idle, 5 * MINUTE, 2**63)
        if self.requires_session and self.forward_to is not None:
            raise OptionError("forward_to", self.forward_to, "an entity that requires sessions cannot forward")

    @property
    def max_bytes(self) -> int:
        """How many bytes the queue takes."""
        return self.max_size_in_megabytes * 1024 * 1024

    @property
    def max_message_bytes(self) -> int:
        """How many bytes a message may have."""
        return self.max_message_size_in_kilobytes * 1024

    def to_json(self) -> str:
        """Return the settings as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read settings back."""
        values: dict[str, Any] = json.loads(text)
        values["authorization_rules"] = [Policy(**rule) for rule in values.get("authorization_rules", ())]
        return cls(**values)


def _between(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise OptionError(option, value, f"{low} to {high}")
