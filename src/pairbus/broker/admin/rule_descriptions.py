"""Rules in XML: filters, actions, and the typed values in them."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pairbus.broker.admin.documents import tag, text
from pairbus.broker.admin.problems import bad_request, bad_value
from pairbus.broker.admin.values import number, span, span_text, truth, truth_text
from pairbus.broker.admin.xml import Element
from pairbus.broker.filters import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter

RULE: Final = "RuleDescription"

_PAIR: Final = "KeyValueOfstringanyType"
_SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
_SERIALIZATION: Final = "http://schemas.microsoft.com/2003/10/Serialization/"
_SQL: Final = ("SqlExpression", "CompatibilityLevel", "Parameters", "RequiresPreprocessing")
_CORRELATED: Final = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}


def read_rule(element: Element, name: str | None = None) -> Rule:
    """Read a rule.

    :param name: what it is called; None: it says so itself.
    """
    _expect(element, ("Filter", "Action", "CreatedAt", "Name"))
    own = _text(element, "Name")
    if name is None:
        if own is None:
            raise bad_request(f"The element 'Name' is missing in '{element.name}'.")
        name = own
    elif own is not None and own.lower() != name.lower():
        raise bad_value("Name", own, f"'{name}', as in the path")
    return Rule(name, _read_filter(element.find("Filter")), _read_action(element.find("Action")))


def write_rule(rule: Rule, created: str) -> str:
    """Return the content of a rule's description.

    :param created: when it was made, as text.
    """
    return (
        _write_filter(rule.filter)
        + _write_action(rule.action)
        + tag("CreatedAt", created)
        + tag("Name", text(rule.name))
    )


# --- filters and actions -------------------------------------------------------------------------------------------


def _read_filter(element: Element | None) -> Filter:
    match None if element is None else element.type:
        case None:
            return TrueFilter()
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter" if element is not None:
            return SqlFilter(*_read_sql(element))
        case "CorrelationFilter" if element is not None:
            _expect(element, (*_CORRELATED, "Properties"))
            values = {setting: _text(element, child) for child, setting in _CORRELATED.items()}
            return CorrelationFilter(**values, properties=_read_values(element.find("Properties")))
        case kind:
            raise bad_value("Filter", str(kind), "one of SqlFilter, CorrelationFilter, TrueFilter, FalseFilter")


def _read_action(element: Element | None) -> SqlAction | None:
    if element is None or element.type == "EmptyRuleAction":
        return None
    if element.type != "SqlRuleAction":
        raise bad_value("Action", element.type, "SqlRuleAction or EmptyRuleAction")
    return SqlAction(*_read_sql(element))


def _read_sql(element: Element) -> tuple[str, dict[str, Any]]:
    _expect(element, _SQL)
    return _text(element, "SqlExpression") or "", _read_values(element.find("Parameters"))


def _write_filter(each: Filter) -> str:
    kind = type(each).__name__
    if isinstance(each, CorrelationFilter):
        values = {child: getattr(each, setting) for child, setting in _CORRELATED.items()}
        content = "".join(tag(child, text(value)) for child, value in values.items() if value is not None)
        content += tag("Properties", _write_values(each.properties))
    elif isinstance(each, SqlFilter):
        content = _write_sql(each.expression, each.compatibility_level, each.parameters)
    else:
        content = _write_sql(each.expression, 20, {})
    return f'<Filter i:type="{kind}">{content}</Filter>'


def _write_action(action: SqlAction | None) -> str:
    if action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    content = _write_sql(action.expression, action.compatibility_level, action.parameters)
    return f'<Action i:type="SqlRuleAction">{content}</Action>'


def _write_sql(expression: str, level: int, parameters: Mapping[str, Any]) -> str:
    return (
        tag("SqlExpression", text(expression))
        + tag("CompatibilityLevel", str(level))
        + tag("Parameters", _write_values(parameters))
        + tag("RequiresPreprocessing", "true")
    )


# --- typed values --------------------------------------------------------------------------------------------------


def _read_values(element: Element | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in element or ():
        if pair.name != _PAIR:
            raise bad_request(f"The element '{pair.name}' is not expected here, but '{_PAIR}'.")
        _expect(pair, ("Key", "Value"))
        key, value = _text(pair, "Key"), pair.find("Value")
        if key is None or value is None:
            raise bad_request(f"The element '{_PAIR}' needs a 'Key' and a 'Value'.")
        if key in values:
            raise bad_value("Key", key, "each of them once")
        values[key] = _read_value(key, value)
    return values


def _read_value(key: str, element: Element) -> object:
    kind, value = element.type, element.text
    try:
        match kind:
            case "string" | "char":
                return value
            case "boolean":
                return truth(value)
            case "int" | "long" | "short" | "byte" | "unsignedInt" | "unsignedShort" | "unsignedByte" | "unsignedLong":
                return number(value)
            case "double" | "float" | "decimal":
                return float(value)
            case "dateTime":
                at = datetime.fromisoformat(value)
                return at.replace(tzinfo=UTC) if at.tzinfo is None else at
            case "duration":
                return span(value)
            case "guid":
                return uuid.UUID(value)
            case _:
                pass
    except (ValueError, OverflowError):
        raise bad_value(key, value, f"a value of the type '{kind}'") from None
    raise bad_value(key, value, f"its type is '{kind}', which no property of a message has")


def _write_values(values: Mapping[str, Any]) -> str:
    return "".join(tag(_PAIR, tag("Key", text(key)) + _write_value(value)) for key, value in values.items())


def _write_value(value: Any) -> str:  # noqa: ANN401 (one of many types)
    kind, written = _typed(value)
    namespace = _SERIALIZATION if kind in ("duration", "guid") else _SCHEMA
    return f'<Value i:type="d6p1:{kind}" xmlns:d6p1="{namespace}">{text(written)}</Value>'


def _typed(value: Any) -> tuple[str, str]:  # noqa: ANN401 (one of many types)
    match value:
        case bool():
            return "boolean", truth_text(value)
        case int():
            return "int" if -(2**31) <= value < 2**31 else "long", str(value)
        case float():
            return "double", repr(value)
        case datetime():
            return "dateTime", value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return "duration", span_text(value)
        case uuid.UUID():
            return "guid", str(value)
        case _:
            return "string", str(value)


def _expect(element: Element, names: Iterable[str]) -> None:
    known = set(names)
    for child in element:
        if child.name not in known or child.namespace != element.namespace:
            raise bad_request(f"The element '{child.name}' is not expected in '{element.name}'.")


def _text(element: Element, name: str) -> str | None:
    child = element.find(name)
    return None if child is None else child.text or None
