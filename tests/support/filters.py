"""Messages as the tests of filters see them."""

import uuid
from typing import Any

from pairbus.amqp.message import Message, build_message, encode_data_section
from pairbus.amqp.sections import Header, Properties
from pairbus.broker.filters import Facts

BODY = encode_data_section(b"the body")
ENQUEUED = 1_700_000_000_000
GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def facts_of(
    properties: Properties | None = None,
    user: dict[Any, Any] | None = None,
    *,
    header: Header | None = None,
    annotations: dict[Any, Any] | None = None,
) -> Facts:
    """Return what filters know of a message that has these sections."""
    payload = build_message(
        BODY, header=header, message_annotations=annotations, properties=properties, application_properties=user
    )
    return Facts(Message(payload), enqueued=ENQUEUED, sequence=7, new_id=lambda: GUID)
