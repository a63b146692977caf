"""What an action makes of a message: the sections that it changes, and the message with them."""

import datetime as dt
from dataclasses import dataclass, replace
from typing import Final

from pairbus.amqp.message import KEEP, Keep
from pairbus.amqp.performatives import Map
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.filters.compiling import CompiledStatement
from pairbus.broker.filters.converting import converted, wanted
from pairbus.broker.filters.errors import EvaluationError
from pairbus.broker.filters.facts import MAX_UINT, PARTITION_KEY, SCHEDULED_TIME, VIA_PARTITION_KEY, Facts
from pairbus.broker.filters.rules import Rule, SqlAction
from pairbus.broker.filters.syntax import Property
from pairbus.broker.filters.values import SPAN, TEXT, TIME, Value, as_amqp, plain

RULE_NAME: Final = "RuleName"
"""The application property in which a copy that an action has made says by which rule."""

MAX_ID: Final = 128
_MILLISECOND: Final = dt.timedelta(milliseconds=1)

_FIELDS: Final = {
    "contenttype": "content_type",
    "correlationid": "correlation_id",
    "label": "subject",
    "messageid": "message_id",
    "replyto": "reply_to",
    "replytosessionid": "reply_to_group_id",
    "sessionid": "group_id",
    "subject": "subject",
    "to": "to",
}
_IDS: Final = frozenset(("messageid", "sessionid", "replytosessionid", "partitionkey"))
_ANNOTATIONS: Final = {
    "partitionkey": (PARTITION_KEY, TEXT),
    "scheduledenqueuetimeutc": (SCHEDULED_TIME, TIME),
    "transactionpartitionkey": (VIA_PARTITION_KEY, TEXT),
    "viapartitionkey": (VIA_PARTITION_KEY, TEXT),
}


@dataclass(frozen=True, slots=True)
class Changes:
    """The sections of a message that an action has changed, as :meth:`Message.rewritten` takes them."""

    header: Header | Keep = KEEP
    message_annotations: Map | Keep = KEEP
    properties: Properties | Keep = KEEP
    application_properties: Map | Keep = KEEP


def apply_action(rule: Rule, facts: Facts) -> bytes:
    """Return a message as the copy that a rule makes of it: changed by its action, and with the rule's name.

    Without an action it is the message as it came. The body is never touched. What an action sets may be what the
    broker acts on (session, schedule, time to live): read the copy anew. May raise :class:`EvaluationError`.
    """
    if rule.action is None:
        return facts.message.data
    changes = changes_of(rule.action, facts, rule.name)
    return facts.message.rewritten(
        header=changes.header,
        message_annotations=changes.message_annotations,
        properties=changes.properties,
        application_properties=changes.application_properties,
    )


def changes_of(action: SqlAction, facts: Facts, rule_name: str | None = None) -> Changes:
    """Return what an action changes; a statement sees what those before it have done."""
    draft = _Draft(facts)
    for statement in action.compiled:
        draft.carry_out(statement)
    if rule_name is not None:
        draft.set_user(RULE_NAME, rule_name)
    return draft.changes()


class _Draft(Facts):
    """A message in the making: what has been changed so far is what is read."""

    __slots__ = ("_changed_annotations", "_changed_header", "_changed_properties", "_changed_user")

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts.message, enqueued=facts.enqueued, sequence=facts.sequence, new_id=facts.new_id)
        self._changed_header: Header | None = None
        self._changed_properties: Properties | None = None
        self._changed_annotations: Map | None = None
        self._changed_user: Map | None = None

    def changes(self) -> Changes:
        return Changes(
            KEEP if self._changed_header is None else self._changed_header,
            KEEP if self._changed_annotations is None else self._changed_annotations,
            KEEP if self._changed_properties is None else self._changed_properties,
            KEEP if self._changed_user is None else self._changed_user,
        )

    def carry_out(self, statement: CompiledStatement) -> None:
        target = statement.target
        value = None if statement.value is None else statement.value(self)
        if target.is_system:
            self._set_system(target, value)
        elif statement.value is None:
            self._remove_user(target.key)
        else:
            self.set_user(target.name, value)

    # --- user properties --------------------------------------------------------------------------------------------

    def _own_user(self) -> Map:
        if self._changed_user is None:
            self._changed_user = dict(self.message.application_properties())
        return self._changed_user

    def _spelled(self, key: str) -> list[str]:
        return [name for name in self._own_user() if isinstance(name, str) and name.lower() == key]

    def set_user(self, name: str, value: Value) -> None:
        properties = self._own_user()
        spelled = self._spelled(name.lower())
        if spelled:
            name = spelled[0]
            value = converted(value, properties[name])
        properties[name] = as_amqp(value)
        self._user = {**self.user, name.lower(): plain(value)}

    def _remove_user(self, key: str) -> None:
        for name in self._spelled(key):
            del self._own_user()[name]
        self._user = {name: value for name, value in self.user.items() if name != key}

    # --- system properties ------------------------------------------------------------------------------------------

    def _set_system(self, target: Property, value: Value) -> None:
        key = target.key
        if key == "timetolive":
            self._set_time_to_live(wanted(SPAN, target.name, value))
            return
        mark, kind = _ANNOTATIONS.get(key, (None, TEXT))
        value = wanted(kind, target.name, value)
        if key in _IDS and value is not None and len(value) > MAX_ID:
            raise EvaluationError(f"sys.{target.name} would have {len(value)} characters; {MAX_ID} at most.")
        if mark is not None:
            self._annotate(mark, value)
        else:
            field = _FIELDS[key]
            setattr(self._own_properties(), field, Symbol(value) if field == "content_type" and value else value)

    def _own_properties(self) -> Properties:
        if self._changed_properties is None:
            self._changed_properties = self._properties = replace(self.properties)
        return self._changed_properties

    def _annotate(self, mark: Symbol, value: Value) -> None:
        if self._changed_annotations is None:
            self._changed_annotations = self._annotations = dict(self.annotations)
        if value is None:
            self._changed_annotations.pop(mark, None)
        else:
            self._changed_annotations[mark] = value

    def _set_time_to_live(self, lives: dt.timedelta | None) -> None:
        if lives is not None and lives < dt.timedelta():
            raise EvaluationError(f"sys.TimeToLive cannot be set to {lives}: it is before now.")
        milliseconds = None if lives is None else lives // _MILLISECOND
        header = replace(self.header, ttl=None if milliseconds is None else min(milliseconds, MAX_UINT))
        self._changed_header = self._header = header
        if milliseconds is not None and milliseconds >= MAX_UINT:  # longer than a header can say
            properties = self._own_properties()
            properties.creation_time = Timestamp(properties.creation_time or self.enqueued or 0)
            properties.absolute_expiry_time = Timestamp(properties.creation_time + milliseconds)
