"""``$management`` of an entity: what the SDK does besides sending, receiving and settling on links."""

import logging
import reprlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pairbus.amqp import AmqpError
from pairbus.amqp.conditions import INTERNAL_ERROR, NOT_FOUND, UNAUTHORIZED_ACCESS
from pairbus.amqp.performatives import Map
from pairbus.amqp.types import Array, Timestamp
from pairbus.broker.access.policies import Right
from pairbus.broker.entities.message import MESSAGE_STATE, Held, outgoing, read_incoming
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.sessions import Sessions
from pairbus.broker.entities.topic import Topic
from pairbus.broker.meter.metering import LinkMeter, charged
from pairbus.broker.namespace.namespace import Namespace, QueueNode
from pairbus.broker.nodes.requests import Answers, NodeRequest, status
from pairbus.broker.refusals import (
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    Answer,
    RefusedError,
    bad_argument,
    message_not_found,
    not_found,
    session_not_supported,
    store_unreadable,
)
from pairbus.broker.store.base import SEQUENCE_BITS, StoreError
from pairbus.core.ledger import Kind

_LOGGER = logging.getLogger(__name__)

VENDOR: Final = "com.microsoft:"
OK: Final = 200
NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
STATUS: Final = {
    MESSAGE_LOCK_LOST: 410,
    SESSION_LOCK_LOST: 410,
    MESSAGE_NOT_FOUND: 404,
    NOT_FOUND: 404,
    UNAUTHORIZED_ACCESS: 401,
    SERVER_BUSY: 503,
    INTERNAL_ERROR: 500,
}
RIGHTS: Final = {
    "schedule-message": Right.SEND,
    "cancel-scheduled-message": Right.SEND,
    "add-rule": Right.MANAGE,
    "remove-rule": Right.MANAGE,
}
"""Which right an operation needs; what is not here needs Listen."""
LONG: Final = 0x81
TIMESTAMP: Final = 0x83
STRING: Final = 0xA1
"""The types of arrays, as AMQP codes them."""
NO_TIME: Final = 253_402_300_800_000
"""The last-updated-time of one who asks for all sessions: the end of time."""
_KINDS: Final = {
    "peek-message": Kind.PEEK,
    "schedule-message": Kind.SCHEDULE,
    "cancel-scheduled-message": Kind.CANCEL,
    "renew-lock": Kind.RENEW,
    "renew-session-lock": Kind.RENEW,
    "get-session-state": Kind.SESSION_STATE,
    "set-session-state": Kind.SESSION_STATE,
    "receive-by-sequence-number": Kind.RECEIVE,
    "completed": Kind.COMPLETE,
    "abandoned": Kind.ABANDON,
    "defered": Kind.DEFER,
    "suspended": Kind.DEAD_LETTER,
}
"""What a request counts as, by its operation, or by its disposition; all else is management."""
MOST_PEEKED: Final = 250
"""How many messages one answer brings at most, as the cloud does; a client asks on from the last of them."""
MOST_RECEIVED: Final = 250
"""How many messages are received by their sequence numbers at once: all of them are one answer."""
MOST_LISTED: Final = 4096
"""How many locks or sequence numbers a request names at most, and how many sessions an answer."""
ANSWER_BYTES: Final = 1024 * 1024
"""How large the messages of one answer to a peek are together, unless the first is larger."""
_PEEKED_AT_ONCE: Final = 16
"""How many are read before their size is looked at."""
_INT_MAX: Final = (1 << 31) - 1
_SEQUENCE_MAX: Final = (1 << 63) - 1
_DELETES: Final = 0
"""The receiver-settle-mode of a receiver that deletes."""


class ManagementNode:
    """Answers the management requests for what can be sent to: a topic, or a queue, of which more can be asked.

    :param check: refuses a client without a right.
    """

    def __init__(
        self,
        namespace: Namespace,
        entity: Queue | Topic,
        answers: Answers,
        changed: Callable[[], None],
        *,
        check: Callable[[Right], None],
        meter: LinkMeter,
    ) -> None:
        self._namespace = namespace
        self._check = check
        self._entity = entity
        self._answers = answers
        self._changed = changed
        self._meter = meter
        self._operations: Mapping[str, Callable[[NodeRequest, Map], None]] = {
            "schedule-message": self._schedule,
            "cancel-scheduled-message": self._cancel,
        }

    def handle(self, request: NodeRequest) -> None:
        """Carry out a request."""
        name = _operation(request)
        operation = self._operations.get(name)
        try:
            self._check(RIGHTS.get(name.removeprefix(VENDOR), Right.LISTEN))
            self._namespace.faults.check(self._entity.path, sends=operation == self._schedule)
            if self._entity.is_deleted:
                raise not_found(self._entity.path)
            if operation is None:
                raise bad_argument(f"The operation '{name}' is not supported.")
            operation(request, _body(request))
        except RefusedError as refused:
            self._refuse(request, refused)
        except AmqpError as error:
            self._refuse(request, RefusedError(error.condition, error.description))
        except StoreError as error:
            _LOGGER.error("%s: %s cannot be answered: %s", self._entity.path, name, error)  # noqa: TRY400 (it says why)
            self._refuse(request, store_unreadable(self._entity.path))
        except (KeyError, TypeError, ValueError) as error:
            self._refuse(request, bad_argument(f"The request '{name}' is not valid: {error!r}."))
        self._changed()

    # --- answering -----------------------------------------------------------------------------------------------

    def _answer(self, request: NodeRequest, body: Map | None = None, code: int = OK) -> None:
        self._count(request, None)
        properties = {"statusCode": status(code), "statusDescription": "OK"}
        self._answers.send(request, properties, {} if body is None else body)

    def _refuse(self, request: NodeRequest, refused: RefusedError) -> None:
        self._count(request, refused)
        code = STATUS.get(refused.condition, BAD_REQUEST)
        properties: dict[str, Any] = {
            "statusCode": status(code),
            "statusDescription": refused.description,
            "errorCondition": refused.condition,
        }
        self._answers.send(request, properties, None)

    def _count(self, request: NodeRequest, refused: RefusedError | None) -> None:
        name, sizes = _operation(request), request.sizes
        if name == "update-disposition":
            name = str(_body(request).get("disposition-status"))
        self._meter[_KINDS.get(name, Kind.MANAGEMENT)].ended(refused, charged(sizes), len(sizes), sum(sizes))

    def _when_durable(self, request: NodeRequest, body: Map | None = None) -> Answer:
        def answer(refused: RefusedError | None) -> None:
            if refused is None:
                self._answer(request, body)
            else:
                self._refuse(request, refused)
            self._changed()

        return answer

    @property
    def _now(self) -> int:
        return self._namespace.clock()

    # --- the operations ------------------------------------------------------------------------------------------

    def _schedule(self, request: NodeRequest, body: Map) -> None:
        messages = [read_incoming(bytes(entry["message"])) for entry in _listed(body, "messages")]
        request.sizes = [len(message.payload) for message in messages if not message.is_ping]  # G3
        answered: Map = {}
        entity = self._namespace.entities.get_destination(self._entity.path)  # no subscription, no dead-letter queue
        numbers = entity.send(messages, self._now, self._when_durable(request, answered))
        answered["sequence-numbers"] = Array(LONG, numbers)

    def _cancel(self, request: NodeRequest, body: Map) -> None:
        numbers = _sequence_numbers(body, MOST_LISTED)
        self._entity.cancel_scheduled(numbers, self._now, self._when_durable(request))


class QueueManagementNode(ManagementNode):
    """Answers the management requests for a queue, a subscription or a dead-letter queue."""

    def __init__(
        self,
        namespace: Namespace,
        node: QueueNode,
        answers: Answers,
        changed: Callable[[], None],
        *,
        check: Callable[[Right], None],
        meter: LinkMeter,
    ) -> None:
        super().__init__(namespace, node.queue, answers, changed, check=check, meter=meter)
        self._node = node
        self._queue = node.queue
        self._operations = {
            **self._operations,
            "peek-message": self._peek,
            "renew-lock": self._renew,
            "renew-session-lock": self._renew_session,
            "get-session-state": self._get_state,
            "set-session-state": self._set_state,
            "get-message-sessions": self._list_sessions,
            "receive-by-sequence-number": self._receive_deferred,
            "update-disposition": self._update_disposition,
        }

    @property
    def _sessions(self) -> Sessions:
        if self._node.sessions is None:
            raise session_not_supported(self._queue.path)
        return self._node.sessions

    def _peek(self, request: NodeRequest, body: Map) -> None:
        first = max(0, _number(body["from-sequence-number"], "from-sequence-number", least=-_SEQUENCE_MAX))
        most = _number(body["message-count"], "message-count", least=1, most=_INT_MAX)
        found = self._peeked(first, min(most, MOST_PEEKED), body.get("session-id"))
        messages = [{"message": outgoing(held, extra={MESSAGE_STATE: status(held.state)})} for held in found]
        request.sizes = [len(held.payload) for held in found]
        self._answer(request, {"messages": messages}, OK if messages else NO_CONTENT)

    def _peeked(self, first: int, most: int, session: str | None) -> list[Held]:
        """Look at so many messages that they fit into one answer, and at the first however large it is."""
        found: list[Held] = []
        size = 0
        while len(found) < most:
            some = self._queue.peek(first, min(_PEEKED_AT_ONCE, most - len(found)), self._now, session=session)
            for held in some:
                size += len(held.payload)
                if found and size > ANSWER_BYTES:
                    return found
                found.append(held)
            if len(some) < _PEEKED_AT_ONCE:
                break
            first = some[-1].sequence + 1
        return found

    def _renew(self, request: NodeRequest, body: Map) -> None:
        tokens = [_token(token) for token in _listed(body, "lock-tokens")]
        ends = [Timestamp(self._queue.renew(token, self._now)) for token in tokens]
        self._answer(request, {"expirations": Array(TIMESTAMP, ends)})

    def _renew_session(self, request: NodeRequest, body: Map) -> None:
        self._answer(request, {"expiration": Timestamp(self._sessions.renew(body["session-id"], self._now))})

    def _get_state(self, request: NodeRequest, body: Map) -> None:
        self._answer(request, {"session-state": self._sessions.state(body["session-id"], self._now)})

    def _set_state(self, request: NodeRequest, body: Map) -> None:
        state = body.get("session-state")
        state = None if state is None else bytes(state)
        self._sessions.set_state(body["session-id"], state, self._now, self._when_durable(request))

    def _list_sessions(self, request: NodeRequest, body: Map) -> None:
        skip = _number(body.get("skip") or 0, "skip", most=_INT_MAX)
        top = min(_number(body.get("top") or 100, "top", most=_INT_MAX), MOST_LISTED)
        since = body.get("last-updated-time")
        names = self._sessions.names(skip, top, None if since is None or since >= NO_TIME else int(since))
        answer = {"skip": status(skip + len(names)), "sessions-ids": Array(STRING, names)}
        self._answer(request, answer if names else None, OK if names else NO_CONTENT)

    def _receive_deferred(self, request: NodeRequest, body: Map) -> None:
        numbers = _sequence_numbers(body, MOST_RECEIVED)
        deletes = int(body["receiver-settle-mode"]) == _DELETES
        if self._node.sessions is not None:
            self._sessions.held(str(body["session-id"]), self._now)
        found = self._queue.take_deferred(numbers, self._now, delete=deletes)
        request.sizes = [len(held.payload) for held in found]
        self._answer(request, {"messages": [_deferred(held) for held in found]})

    def _update_disposition(self, request: NodeRequest, body: Map) -> None:
        tokens = [_token(token) for token in _listed(body, "lock-tokens", least=1)]
        request.sizes = [0] * len(tokens)
        outcome = str(body["disposition-status"])
        changes: Map = body.get("properties-to-modify") or {}
        properties = {str(name): value for name, value in changes.items()}
        if body.get("session-id") is not None:
            self._sessions.held(body["session-id"], self._now)
        waiting = len(tokens)
        failed: list[RefusedError] = []

        def answer(refused: RefusedError | None) -> None:
            nonlocal waiting
            waiting -= 1
            failed.extend([refused] if refused is not None else [])
            if waiting == 0:
                self._when_durable(request)(failed[0] if failed else None)

        for token in tokens:
            self._settle(token, outcome, properties, body, answer)

    def _settle(self, token: bytes, outcome: str, properties: Map, body: Map, answer: Answer) -> None:
        queue, now = self._queue, self._now
        match outcome:
            case "completed":
                queue.complete(token, now, answer)
            case "abandoned":
                queue.abandon(token, now, answer, properties)
            case "defered":
                queue.defer(token, now, answer, properties)
            case "suspended":
                queue.dead_letter(
                    token,
                    now,
                    answer,
                    reason=body.get("deadletter-reason"),
                    description=body.get("deadletter-description"),
                    properties=properties,
                )
            case _:
                raise bad_argument(f"The disposition '{outcome}' is not supported.")


def _operation(request: NodeRequest) -> str:
    return str(request.application_properties.get("operation", "")).removeprefix(VENDOR)


def _body(request: NodeRequest) -> Map:
    value = request.body
    return cast("Map", value) if isinstance(value, dict) else {}


def _number(value: object, name: str, *, least: int = 0, most: int = _SEQUENCE_MAX) -> int:
    """Return a number that a client names, or refuse."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise bad_argument(f"'{name}' must be a number from {least} to {most}, not {reprlib.repr(value)}.")
    return int(value)


def _listed(body: Map, name: str, *, least: int = 0, most: int = MOST_LISTED) -> list[Any]:
    """Return a list that a client names, or refuse."""
    value = body[name]
    if not isinstance(value, list):
        raise bad_argument(f"'{name}' must be a list, not {reprlib.repr(value)}.")
    found = cast("list[Any]", value)
    if not least <= len(found) <= most:
        raise bad_argument(f"'{name}' must have {least} to {most} elements, not {len(found)}: make several requests.")
    return found


def _sequence_numbers(body: Map, most: int) -> list[int]:
    """Return the sequence numbers that a client names, or refuse.

    A number beyond those that messages can have is never handed on: together with an entity's id, it would be the key
    of another entity's message.
    """
    name = "sequence-numbers"
    numbers = [_number(number, name) for number in _listed(body, name, most=most)]
    beyond = [number for number in numbers if number >> SEQUENCE_BITS]
    if beyond:
        raise message_not_found(beyond)
    return numbers


def _token(value: object) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise bad_argument(f"A lock token is a uuid, not {value!r}.")
    return value.bytes_le


def _deferred(held: Held) -> dict[str, Any]:
    entry: dict[str, Any] = {"message": outgoing(held)}
    if held.token is not None:
        entry["lock-token"] = uuid.UUID(bytes_le=held.token)
    return entry
