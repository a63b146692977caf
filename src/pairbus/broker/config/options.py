"""What a broker is to serve: from options, or from a file in the format of Microsoft's emulator."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from pairbus.broker.access.documents import ENTRY, from_entries, to_entries
from pairbus.broker.access.policies import Policies
from pairbus.broker.config.documents import (
    DURATION,
    Properties,
    a_list,
    read_properties,
    table,
    tables,
    text,
    write_properties,
)
from pairbus.broker.config.topic_documents import SubscriptionConfig, TopicConfig, read_topic, write_topic
from pairbus.broker.entities.settings import EntityStatus, QueueSettings
from pairbus.errors import OptionError

DEFAULT_PORT: Final = 5672
MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """One namespace; port 0 is any that is free."""

    name: str
    port: int = 0
    queues: Mapping[str, QueueSettings] = field(default_factory=dict[str, QueueSettings])
    topics: Mapping[str, TopicConfig] = field(default_factory=dict[str, TopicConfig])
    policies: Policies = ()


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS with a certificate and its key, files in PEM; without them, the broker makes its own."""

    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            missing, given = ("key", "certificate") if self.key is None else ("certificate", "key")
            raise OptionError(missing, None, f"a file, for there is a {given}; give both, or none and have them made")


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All that a broker serves.

    :ivar data: the directory in which namespaces are stored; None: in memory.
    :ivar ledger: the directory in which it keeps account of every operation; None: nowhere.
    :ivar tls: how it speaks TLS, besides plain AMQP and HTTP; None: not at all.
    :ivar accept_loss: serve namespaces although commits that were acknowledged cannot be read from ``data`` any more.
    """

    namespaces: Sequence[NamespaceConfig]
    host: str = "127.0.0.1"
    data: Path | None = None
    tls: TlsConfig | None = None
    ledger: Path | None = None
    accept_loss: bool = False


def from_options(
    namespaces: Sequence[str],
    queues: Iterable[str] | Mapping[str, QueueSettings],
    topics: Iterable[str] | Mapping[str, TopicConfig | Iterable[str]] = (),
    subscriptions: Iterable[str] = (),
    *,
    port: int = DEFAULT_PORT,
    host: str = "127.0.0.1",
    data: Path | None = None,
) -> BrokerConfig:
    """Read namespaces, as ``contoso`` or ``contoso:5700``, and queues, as ``contoso/orders`` or just ``orders``.

    A mapping gives each queue its settings; the others have the cloud's defaults. Topics are named in the same way; a
    mapping gives each its subscriptions, or all that it is to be. A subscription, ``contoso/orders/all``, has a topic,
    which is made if nobody else has named it.

    The first namespace without a port of its own gets ``port``, the next one the port after it; 0 stays 0.
    """
    made: dict[str, NamespaceConfig] = {}
    following = port
    for given in namespaces or ("localhost",):
        name, _, own = given.partition(":")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,49}", name) or (own and not own.isdigit()):
            raise OptionError("namespace", given, "a name of letters, digits and dashes, and a port: contoso:5700")
        if name.lower() in made:
            raise OptionError("namespace", given, "each namespace is named once")
        made[name.lower()] = NamespaceConfig(name, int(own) if own else following)
        following += 0 if own or not following else 1
    if not isinstance(queues, Mapping):
        queues = dict.fromkeys(queues, QueueSettings())
    for given, settings in cast("Mapping[str, QueueSettings]", queues).items():
        namespace, path = _located("queue", given, made)
        made[namespace.name.lower()] = replace(namespace, queues={**namespace.queues, path: settings})
    _place_topics(made, topics)
    for given in subscriptions:
        _place_subscription(made, given)
    return BrokerConfig(tuple(made.values()), host, data)


def _place_topics(
    made: dict[str, NamespaceConfig], topics: Iterable[str] | Mapping[str, TopicConfig | Iterable[str]]
) -> None:
    if not isinstance(topics, Mapping):
        topics = dict.fromkeys(topics, ())
    for given, wanted in cast("Mapping[str, TopicConfig | Iterable[str]]", topics).items():
        namespace, path = _located("topic", given, made)
        names = () if isinstance(wanted, TopicConfig) else wanted
        topic = wanted if isinstance(wanted, TopicConfig) else TopicConfig()
        topic = replace(topic, subscriptions={**topic.subscriptions, **dict.fromkeys(names, SubscriptionConfig())})
        made[namespace.name.lower()] = replace(namespace, topics={**namespace.topics, path: topic})


def _place_subscription(made: dict[str, NamespaceConfig], given: str) -> None:
    namespace, path = _located("subscription", given, made)
    path, separator, name = path.rpartition("/")
    if not separator:
        raise OptionError("subscription", given, "a topic and a name: orders/all")
    topic = namespace.topics.get(path, TopicConfig())
    topic = replace(topic, subscriptions={**topic.subscriptions, name: SubscriptionConfig()})
    made[namespace.name.lower()] = replace(namespace, topics={**namespace.topics, path: topic})


def _located(kind: str, given: str, made: Mapping[str, NamespaceConfig]) -> tuple[NamespaceConfig, str]:
    """Return the namespace of an entity and its path there."""
    name, separator, path = given.partition("/")
    if separator and name.lower() in made:
        return made[name.lower()], path
    if len(made) > 1:
        raise OptionError(kind, given, f"with several namespaces, namespace/{kind}: contoso/orders")
    return next(iter(made.values())), given


def from_file(
    file: Path, *, port: int = DEFAULT_PORT, host: str = "127.0.0.1", data: Path | None = None
) -> BrokerConfig:
    """Read a ``Config.json`` of Microsoft's emulator, with queues, topics, subscriptions and rules.

    Besides the emulator's properties an entity may have the cloud's other ones, and a namespace its ``Port``;
    namespaces, queues and topics may have ``SharedAccessPolicies``.
    """
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError("config", str(file), f"a JSON file that can be read ({error})") from None
    found = a_list(table(table(document, "the file").get("UserConfig"), "UserConfig"), "Namespaces", "UserConfig")
    namespaces = [
        _namespace(table(entry, f"Namespaces[{index}]"), f"Namespaces[{index}]", port + index if port else 0)
        for index, entry in enumerate(found)
    ]
    return BrokerConfig(tuple(namespaces), host, data)


def to_document(config: BrokerConfig) -> dict[str, Any]:
    """Return what :func:`from_file` reads; where the broker listens and keeps its data is not part of it."""
    namespaces = [
        {
            "Name": namespace.name,
            "Port": namespace.port,
            ENTRY: to_entries(namespace.policies),
            "Queues": [
                {
                    "Name": path,
                    "Properties": write_properties(settings, _QUEUE),
                    ENTRY: to_entries(settings.authorization_rules),
                }
                for path, settings in namespace.queues.items()
            ],
            "Topics": [write_topic(path, topic) for path, topic in namespace.topics.items()],
        }
        for namespace in config.namespaces
    ]
    return {"UserConfig": {"Namespaces": namespaces}}


def _namespace(entry: Mapping[str, Any], where: str, port: int) -> NamespaceConfig:
    queues: dict[str, QueueSettings] = {}
    for queue, here in tables(entry, "Queues", where):
        properties = read_properties(table(queue.get("Properties") or {}, here), _QUEUE, here)
        rules = from_entries(queue.get(ENTRY) or [], f"{here}.{ENTRY}")
        queues[text(queue, "Name", here)] = QueueSettings(**properties, authorization_rules=rules)
    topics = dict(read_topic(*found) for found in tables(entry, "Topics", where))
    own = entry.get("Port", port)
    if not isinstance(own, int) or isinstance(own, bool) or not 0 <= own <= MAX_PORT:
        raise OptionError(f"{where}.Port", own, f"0 to {MAX_PORT}; 0 is any that is free")
    policies = from_entries(entry.get(ENTRY) or [], f"{where}.{ENTRY}")
    return NamespaceConfig(text(entry, "Name", where), own, queues, topics, policies)


_QUEUE: Final[Properties] = {
    "AutoDeleteOnIdle": ("auto_delete_on_idle", DURATION),
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", bool),
    "DefaultMessageTimeToLive": ("default_message_time_to_live", DURATION),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window", DURATION),
    "EnableBatchedOperations": ("enable_batched_operations", bool),
    "EnableExpress": ("enable_express", bool),
    "EnablePartitioning": ("enable_partitioning", bool),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", str),
    "ForwardTo": ("forward_to", str),
    "LockDuration": ("lock_duration", DURATION),
    "MaxDeliveryCount": ("max_delivery_count", int),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", int),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", int),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", bool),
    "RequiresSession": ("requires_session", bool),
    "Status": ("status", EntityStatus),
    "UserMetadata": ("user_metadata", str),
}
