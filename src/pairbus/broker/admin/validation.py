"""What the cloud demands of names and settings before it makes or changes an entity."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from pairbus.broker.admin.descriptions import Form, Kind
from pairbus.broker.admin.problems import (
    bad_name,
    bad_request,
    bad_size,
    bad_span,
    bad_value,
    is_fixed,
    long_name,
    not_in_tier,
)
from pairbus.broker.entities.settings import DAY, MAX_PATH, MINUTE, SECOND

MAX_NAME: Final = 50
"""Characters of the name of a subscription, or of a rule."""
MAX_METADATA: Final = 1024
SIZES: Final = (1024, 2048, 3072, 4096, 5120)
MESSAGE_SIZE: Final = 256

_SEGMENT: Final = "[A-Za-z0-9._-]+"
_SPANS: Final[Mapping[str, tuple[int, int | None]]] = {
    "LockDuration": (5 * SECOND, 5 * MINUTE),
    "DuplicateDetectionHistoryTimeWindow": (20 * SECOND, 7 * DAY),
    "DefaultMessageTimeToLive": (SECOND, None),
    "AutoDeleteOnIdle": (5 * MINUTE, None),
}


def check_path(path: str, uri: str) -> None:
    """Refuse a path that no queue or topic can have."""
    if len(path) > MAX_PATH:
        raise long_name("entity path", path, MAX_PATH)
    if not re.fullmatch(f"{_SEGMENT}(/{_SEGMENT})*", path):
        raise bad_name(uri)


def check_name(kind: str, name: str, uri: str) -> None:
    """Refuse a name that no subscription or rule can have."""
    if len(name) > MAX_NAME:
        raise long_name(f"{kind} name", name, MAX_NAME)
    if not re.fullmatch(r"\$?" + _SEGMENT, name):
        raise bad_name(uri)


def check_settings(kind: Kind, values: Mapping[str, Any], old: object | None) -> None:
    """Refuse settings that an entity cannot have, or that it cannot change; what it has already it may keep.

    :param values: the settings by their names; those that are not given need no check.
    :param old: the settings of the entity that is to be changed; None: it is to be made.
    """
    for each in kind.properties:
        if each.setting not in values:
            continue
        value = values[each.setting]
        if old is not None and value == getattr(old, each.setting):
            continue
        if old is not None and each.is_fixed:
            raise is_fixed(each.element, kind.name)
        if each.form is Form.SPAN:
            _check_span(each.element, value)
        elif each.form in (Form.NUMBER, Form.TEXT):
            _check_measure(kind, each.element, value)
    if values.get("enable_express") and values.get("requires_duplicate_detection"):
        raise bad_request(
            "Both DelayedPersistence property and RequiresDuplicateDetection property cannot be enabled together."
        )


def _check_span(element: str, value: int | None) -> None:
    least, most = _SPANS[element]
    actual = timedelta.max if value is None else timedelta(milliseconds=value)
    if value is not None and value < least:
        raise bad_span(element, timedelta(milliseconds=least), actual, is_short=True)
    if most is not None and (value is None or value > most):
        raise bad_span(element, timedelta(milliseconds=most), actual, is_short=False)


def _check_measure(kind: Kind, element: str, value: Any) -> None:  # noqa: ANN401 (a setting of any type)
    match element:
        case "MaxSizeInMegabytes" if value not in SIZES:
            raise bad_size(value, SIZES)
        case "MaxMessageSizeInKilobytes" if value != MESSAGE_SIZE:
            raise not_in_tier(element, kind.name)
        case "MaxDeliveryCount" if not 1 <= value < 2**31:
            raise bad_value(element, str(value), f"1 to {2**31 - 1}")
        case "UserMetadata" if len(str(value or "")) > MAX_METADATA:
            raise bad_request(f"The property 'UserMetadata' exceeds the '{MAX_METADATA}' character limit.")
        case _:
            pass
