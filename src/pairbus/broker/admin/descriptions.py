"""Descriptions of queues, topics and subscriptions in XML: which element is which setting, and how it is written."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pairbus.broker.admin.documents import description, tag, text
from pairbus.broker.admin.policies import read_policies, write_policies
from pairbus.broker.admin.problems import bad_request, bad_value
from pairbus.broker.admin.values import milliseconds, milliseconds_text, number, truth, truth_text
from pairbus.broker.admin.xml import INSTANCE, Element
from pairbus.broker.entities.runtime import Runtime
from pairbus.broker.entities.settings import EntityStatus


class Form(enum.Enum):
    """How a value is written."""

    SPAN = enum.auto()
    """A duration in milliseconds; None: the longest one."""
    TRUTH = enum.auto()
    NUMBER = enum.auto()
    TEXT = enum.auto()
    PATH = enum.auto()
    """The path of an entity of this namespace, which stands there as a URI."""
    STATUS = enum.auto()
    POLICIES = enum.auto()
    """Shared access policies, the only value that is not text."""
    TOLD = enum.auto()
    """The broker tells it, and reads over it: it is XML already."""


@dataclass(frozen=True, slots=True)
class Property:
    """One element of a description.

    :ivar setting: the name of the setting; empty: it is none.
    :ivar is_fixed: it cannot be changed once there is an entity.
    :ivar since: the first version of the API that has it.
    """

    element: str
    setting: str = ""
    form: Form = Form.TOLD
    is_fixed: bool = False
    since: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of entity, with the elements of its description in the order that the cloud wants."""

    name: str
    properties: tuple[Property, ...]

    @property
    def element(self) -> str:
        """The name of the description's element."""
        return f"{self.name}Description"

    def read(self, element: Element) -> dict[str, Any]:
        """Return the settings that a description has, by their names; what it does not have is left out."""
        known = {each.element: each for each in self.properties}
        values: dict[str, Any] = {}
        for child in element:
            named = known.pop(child.name, None) if child.namespace == element.namespace else None
            if named is None:
                raise bad_request(f"The element '{child.name}' is not expected in '{self.element}', or not again.")
            if named.form is not Form.TOLD and child.attributes.get(f"{INSTANCE} nil") != "true":
                values[named.setting] = (
                    read_policies(child) if named.form is Form.POLICIES else _read(named, child.text)
                )
        return values

    def write(self, settings: object, told: Mapping[str, str], *, host: str, version: str) -> str:
        """Return a description.

        :param told: the elements that are no settings, XML, by their names; those that are missing are left out.
        :param host: this namespace's, for the paths in it.
        :param version: of the API that the client speaks.
        """
        parts: list[str] = []
        for each in self.properties:
            if each.since > version:
                continue
            written = told.get(each.element)
            if each.form is not Form.TOLD:
                written = _write(each.form, getattr(settings, each.setting), host)
            if written is not None:
                parts.append(tag(each.element, written))
        return description(self.element, "".join(parts))


def _read(each: Property, value: str) -> object:
    try:
        match each.form:
            case Form.SPAN:
                return milliseconds(value)
            case Form.TRUTH:
                return truth(value)
            case Form.NUMBER:
                return number(value)
            case Form.STATUS:
                return EntityStatus(value)
            case Form.PATH:
                return path_of(value)
            case _:
                return value or None
    except (ValueError, OverflowError) as error:
        valid = "one of " + ", ".join(EntityStatus) if each.form is Form.STATUS else str(error)
        raise bad_value(each.element, value, valid) from None


def _write(form: Form, value: Any, host: str) -> str | None:  # noqa: ANN401 (a setting of any type)
    if form is Form.SPAN:
        return milliseconds_text(value)
    if value is None:
        return None
    if form is Form.TRUTH:
        return truth_text(value)
    if form is Form.POLICIES:
        return write_policies(value)
    return text(f"sb://{host}/{value}" if form is Form.PATH else str(value))


def path_of(uri: str) -> str | None:
    """Return the path of an entity of which there is the path or the URI; None: there is none."""
    path = uri.partition("://")[2].partition("/")[2] if "://" in uri else uri
    return path.strip("/") or None


def counts(runtime: Runtime) -> str:
    """Return the content of ``CountDetails``: how many messages there are, by what they wait for."""
    namespace = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
    numbers = {
        "Active": runtime.active_message_count,
        "DeadLetter": runtime.dead_letter_message_count,
        "Scheduled": runtime.scheduled_message_count,
        "Transfer": runtime.transfer_message_count,
        "TransferDeadLetter": runtime.transfer_dead_letter_message_count,
    }
    return "".join(
        f'<{name}MessageCount xmlns="{namespace}">{count}</{name}MessageCount>' for name, count in numbers.items()
    )


_LIMITS: Final = (
    Property("MaxSizeInMegabytes", "max_size_in_megabytes", Form.NUMBER),
    Property("RequiresDuplicateDetection", "requires_duplicate_detection", Form.TRUTH, is_fixed=True),
)
_WINDOW: Final = Property("DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window", Form.SPAN)
_LOCK: Final = Property("LockDuration", "lock_duration", Form.SPAN)
_SESSION: Final = Property("RequiresSession", "requires_session", Form.TRUTH, is_fixed=True)
_TIME_TO_LIVE: Final = Property("DefaultMessageTimeToLive", "default_message_time_to_live", Form.SPAN)
_EXPIRATION: Final = Property("DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", Form.TRUTH)
_DELIVERIES: Final = Property("MaxDeliveryCount", "max_delivery_count", Form.NUMBER)
_BATCHED: Final = Property("EnableBatchedOperations", "enable_batched_operations", Form.TRUTH)
_IDLE: Final = Property("AutoDeleteOnIdle", "auto_delete_on_idle", Form.SPAN)
_STATUS: Final = Property("Status", "status", Form.STATUS)
_FORWARD: Final = Property("ForwardTo", "forward_to", Form.PATH)
_FORWARD_DEAD: Final = Property("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", Form.PATH)
_METADATA: Final = Property("UserMetadata", "user_metadata", Form.TEXT)
_PARTITIONING: Final = Property("EnablePartitioning", "enable_partitioning", Form.TRUTH, is_fixed=True)
_POLICIES: Final = Property("AuthorizationRules", "authorization_rules", Form.POLICIES)
_EXPRESS: Final = Property("EnableExpress", "enable_express", Form.TRUTH)
_MESSAGE_SIZE: Final = Property(
    "MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", Form.NUMBER, since="2021-05"
)


def _told(*names: str) -> Sequence[Property]:
    return [Property(name) for name in names]


QUEUE: Final = Kind(
    "Queue",
    (
        _LOCK,
        *_LIMITS,
        _SESSION,
        _TIME_TO_LIVE,
        _EXPIRATION,
        _WINDOW,
        _DELIVERIES,
        _BATCHED,
        *_told("SizeInBytes", "MessageCount", "IsAnonymousAccessible"),
        _POLICIES,
        _STATUS,
        *_told("CreatedAt", "UpdatedAt", "AccessedAt", "SupportOrdering", "CountDetails"),
        _IDLE,
        _PARTITIONING,
        *_told("EntityAvailabilityStatus"),
        _EXPRESS,
        _FORWARD,
        _METADATA,
        _FORWARD_DEAD,
        _MESSAGE_SIZE,
    ),
)

TOPIC: Final = Kind(
    "Topic",
    (
        _TIME_TO_LIVE,
        *_LIMITS,
        _WINDOW,
        _BATCHED,
        *_told("SizeInBytes", "FilteringMessagesBeforePublishing", "IsAnonymousAccessible"),
        _POLICIES,
        _STATUS,
        *_told("CreatedAt", "UpdatedAt", "AccessedAt"),
        Property("SupportOrdering", "support_ordering", Form.TRUTH),
        *_told("CountDetails", "SubscriptionCount"),
        Property("SqlFilterCount", since="2024-05"),
        Property("CorrelationFilterCount", since="2024-05"),
        _IDLE,
        _PARTITIONING,
        *_told("EntityAvailabilityStatus", "EnableSubscriptionPartitioning"),
        _EXPRESS,
        _METADATA,
        _MESSAGE_SIZE,
    ),
)

SUBSCRIPTION: Final = Kind(
    "Subscription",
    (
        _LOCK,
        _SESSION,
        _TIME_TO_LIVE,
        _EXPIRATION,
        Property(
            "DeadLetteringOnFilterEvaluationExceptions", "dead_lettering_on_filter_evaluation_exceptions", Form.TRUTH
        ),
        *_told("MessageCount"),
        _DELIVERIES,
        _BATCHED,
        _STATUS,
        _FORWARD,
        *_told("CreatedAt", "UpdatedAt", "AccessedAt", "CountDetails"),
        _FORWARD_DEAD,
        _IDLE,
        *_told("EntityAvailabilityStatus"),
        _METADATA,
        *_told("DefaultRuleDescription", "IsClientAffine"),
    ),
)
