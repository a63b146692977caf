"""A message, kept as the bytes it came in.

:class:`Message` finds where its sections lie and decodes one only when asked. What a broker changes (header and
annotations) or a client (properties) is put in place of the old section; every other byte is carried as it is.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from pairbus.amqp.composites import decode_one, encode_composite
from pairbus.amqp.conditions import DECODE_ERROR, AmqpError
from pairbus.amqp.decoder import CONSTRUCTORS, MAX_COUNT, decode, decode_next, skip
from pairbus.amqp.encoder import encode, encode_map
from pairbus.amqp.fast.hotpath import read_map, read_properties
from pairbus.amqp.performatives import Map
from pairbus.amqp.sections import Header, Properties
from pairbus.amqp.types import Value

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SEQUENCE: Final = 0x76
VALUE: Final = 0x77
FOOTER: Final = 0x78

_LIST: Final = frozenset((0x45, 0xC0, 0xD0))
_MAP: Final = frozenset((0xC1, 0xD1))
_CONSTRUCTORS: Final[dict[int, frozenset[int]]] = {
    HEADER: _LIST,
    DELIVERY_ANNOTATIONS: _MAP,
    MESSAGE_ANNOTATIONS: _MAP,
    PROPERTIES: _LIST,
    APPLICATION_PROPERTIES: _MAP,
    DATA: frozenset((0xA0, 0xB0)),
    SEQUENCE: _LIST,
    VALUE: CONSTRUCTORS,
    FOOTER: _MAP,
}
_UNREAD: Final = frozenset((DELIVERY_ANNOTATIONS, FOOTER))
_NAMES: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}
_VARIABLE: Final = 0xA0
_WIDE: Final = 0x10
_SMALL_ULONG: Final = 0x53
_SHORT: Final = b"\x00\x53"

_PROPERTIES_HEAD: Final = b"\x00\x53\x73"
_LIST8: Final = 0xC0
_LIST32: Final = 0xD0

_unpack_uint = struct.Struct(">I").unpack_from
_pack_short = struct.Struct(">BBBBB").pack
_pack_list32 = struct.Struct(">BII").pack
_pack_long = struct.Struct(">BBBBI").pack


class Keep:
    """The type of :data:`KEEP`."""

    __slots__ = ()


KEEP: Final = Keep()
"""Leave a section as it is."""


class Message:
    """An encoded message and where its sections lie; malformed bytes raise :class:`AmqpError`.

    Sections are taken in any order (the SDK writes delivery annotations last) but, body sections apart, once.
    """

    __slots__ = ("_bare_at", "_sections", "body", "data", "is_spelled_short")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._sections: dict[int, tuple[int, int, int]] = {}
        """Code → where the section begins, where its value begins, where both end."""
        self.body: list[tuple[int, int, int]] = []
        """Kind (``DATA``, ``SEQUENCE`` or ``VALUE``), and where its value begins and ends, per body section."""
        self._bare_at: int | None = 0
        self.is_spelled_short = True
        """Whether each section begins with 00 53 and its code, as all do in practice and the SDK takes for granted."""
        self._scan()

    def _scan(self) -> None:  # noqa: C901, PLR0912 (one pass without calls is the point)
        data, end = self.data, len(self.data)
        sections = self._sections
        position = 0
        leading = 0
        while position < end:
            start = position
            if end - start > 3 and data[start] == 0 and data[start + 1] == _SMALL_ULONG:  # noqa: PLR2004 (00 53 code)
                code = data[start + 2]
                value = start + 3
            else:
                code, value = _descriptor(data, start, end)
                self.is_spelled_short = False
            constructor = data[value] if value < end else -1
            if constructor not in _CONSTRUCTORS.get(code, ()):
                raise AmqpError(DECODE_ERROR, f"no section begins with {data[start : value + 1][:16].hex()}")
            if constructor < _VARIABLE or value + 5 > end:
                position = skip(data, value, end)
            elif constructor & _WIDE:
                position = value + 5 + _unpack_uint(data, value + 1)[0]
            else:
                position = value + 2 + data[value + 1]
            if position > end:
                raise AmqpError(DECODE_ERROR, "a section is longer than the message")
            if DATA <= code <= VALUE:
                self._add_body(code, value, position)
                continue
            if code in sections:
                raise AmqpError(DECODE_ERROR, f"section 0x{code:02x} twice")
            sections[code] = (start, value, position)
            if code <= MESSAGE_ANNOTATIONS:
                if leading == start and self._bare_at is not None:
                    leading = self._bare_at = position
                else:
                    self._bare_at = None  # in the midst of the bare message

    def _add_body(self, code: int, value: int, end: int) -> None:
        body = self.body
        if body and (code != body[0][0] or code == VALUE):
            raise AmqpError(DECODE_ERROR, "a body is data, or sequences, or one value")
        if len(body) >= MAX_COUNT:
            raise AmqpError(DECODE_ERROR, f"more than {MAX_COUNT} body sections")
        body.append((code, value, end))

    # --- reading ---------------------------------------------------------------------------------------------------

    def has(self, code: int) -> bool:
        """Tell whether there is such a section, other than a body."""
        return code in self._sections

    def _map(self, code: int) -> Map:
        found = self._sections.get(code)
        return {} if found is None else read_map(self.data, found[1], found[2])

    def header(self) -> Header | None:
        """Decode the header. The same few come again and again, so their fields are remembered."""
        found = self._sections.get(HEADER)
        if found is None:
            return None
        octets = self.data[found[0] : found[2]]
        fields = _headers.get(octets)
        if fields is None:
            header = decode_one(Header, octets)
            fields = (header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count)
            if len(_headers) >= _KEPT_HEADERS:
                _headers.clear()
            if len(octets) <= _SHORT_HEADER:
                _headers[octets] = fields
        return Header(*fields)

    def delivery_annotations(self) -> Map:
        """Decode the delivery annotations; empty if there are none."""
        return self._map(DELIVERY_ANNOTATIONS)

    def message_annotations(self) -> Map:
        """Decode the message annotations; empty if there are none."""
        return self._map(MESSAGE_ANNOTATIONS)

    def properties(self) -> Properties | None:
        """Decode the standard properties."""
        found = self._sections.get(PROPERTIES)
        return None if found is None else read_properties(self.data, found[0], found[1], found[2])

    def application_properties(self) -> Map:
        """Decode the application's properties; empty if there are none."""
        return self._map(APPLICATION_PROPERTIES)

    def footer(self) -> Map:
        """Decode the footer; empty if there is none."""
        return self._map(FOOTER)

    def check_unread(self) -> None:
        """Refuse malformed sections that nobody on the way reads, so that they do not come as a surprise at the end.

        Data is bytes, whatever they are, and is not looked at.
        """
        for code, (_start, value, end) in self._sections.items():
            if code == APPLICATION_PROPERTIES:
                for name in read_map(self.data, value, end):
                    if not isinstance(name, str):
                        raise AmqpError(DECODE_ERROR, f"an application property is named {name!r:.80}, no string")
            elif code in _UNREAD:
                read_map(self.data, value, end)
        if self.body and self.body[0][0] != DATA:
            self.body_values()

    def body_values(self) -> list[Value]:
        """Decode the body: one value per section."""
        return [decode(self.data, start, end)[0] for _code, start, end in self.body]

    def data_sections(self) -> list[bytes]:
        """Return the binary of each data section; a body of another kind is refused."""
        data = self.data
        if self.body and self.body[0][0] != DATA:
            raise AmqpError(DECODE_ERROR, "the body is not data")
        return [data[start + (5 if data[start] & _WIDE else 2) : end] for _code, start, end in self.body]

    @property
    def is_in_order(self) -> bool:
        """Whether header and annotations, if there are any, come before everything else."""
        return self._bare_at is not None

    @property
    def bare(self) -> bytes:
        """The message without header and annotations: what no broker may change, byte for byte."""
        if self._bare_at is not None:
            return self.data[self._bare_at :]
        cuts = sorted(span for code, span in self._sections.items() if code <= MESSAGE_ANNOTATIONS)
        parts: list[bytes] = []
        position = 0
        for start, _value, end in cuts:
            parts.append(self.data[position:start])
            position = end
        parts.append(self.data[position:])
        return b"".join(parts)

    # --- rewriting -------------------------------------------------------------------------------------------------

    def rewritten(
        self,
        *,
        header: Header | Keep | None = KEEP,
        delivery_annotations: Map | Keep | None = KEEP,
        message_annotations: Map | Keep | None = KEEP,
        properties: Properties | Keep | None = KEEP,
        application_properties: Map | Keep | None = KEEP,
    ) -> bytes:
        """Encode the message with some sections replaced; ``None`` or an empty map leaves a section out.

        If a section begins in an unusual way, all begin in the usual one then.
        """
        parts = [
            self._section(HEADER) if isinstance(header, Keep) else encode_header(header),
            self._replaced(DELIVERY_ANNOTATIONS, delivery_annotations),
            self._replaced(MESSAGE_ANNOTATIONS, message_annotations),
        ]
        if self.is_spelled_short and isinstance(properties, Keep) and isinstance(application_properties, Keep):
            parts.append(self.bare)
            return b"".join(parts)
        if isinstance(properties, Keep):
            parts.append(self._section(PROPERTIES))
        elif properties is not None:
            parts.append(encode_composite(properties))
        parts.append(self._replaced(APPLICATION_PROPERTIES, application_properties))
        parts.extend(_SHORT + bytes((code,)) + self.data[start:end] for code, start, end in self.body)
        parts.append(self._section(FOOTER))
        return b"".join(parts)

    def with_message_id(self, message_id: str) -> bytes:
        """Encode a message that has no message-id with one; every other byte is carried as it is.

        Only for a message that is in order and spelled short. The id is ASCII and short.
        """
        data = self.data
        field = b"\xa1" + bytes((len(message_id),)) + message_id.encode("ascii")
        found = self._sections.get(PROPERTIES)
        if found is None:
            at = self._bare_at or 0
            return data[:at] + _PROPERTIES_HEAD + _encode_fields(1, field) + data[at:]
        start, value, end = found
        constructor = data[value]
        if constructor == _LIST8:
            count, fields = data[value + 2], data[value + 3 : end]
        elif constructor == _LIST32:
            count, fields = _unpack_uint(data, value + 5)[0], data[value + 9 : end]
        else:
            count, fields = 0, b""
        fields = field + fields[1:]  # the first one was null
        return data[:start] + _PROPERTIES_HEAD + _encode_fields(max(1, count), fields) + data[end:]

    def _section(self, code: int) -> bytes:
        found = self._sections.get(code)
        return b"" if found is None else _SHORT + bytes((code,)) + self.data[found[1] : found[2]]

    def _replaced(self, code: int, content: Map | Keep | None) -> bytes:
        return self._section(code) if isinstance(content, Keep) else encode_map_section(code, content)


_headers: dict[bytes, tuple[bool | None, int | None, int | None, bool | None, int | None]] = {}
_KEPT_HEADERS: Final = 512
_SHORT_HEADER: Final = 40


def _descriptor(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the code of a section whose descriptor is spelled in another way, and where its value begins."""
    if data[start] != 0:
        raise AmqpError(DECODE_ERROR, "a section of a message was expected")
    descriptor, value = decode_next(data, start + 1, end, [1, 1])
    if isinstance(descriptor, str):
        return _NAMES.get(descriptor, -1), value
    return (int(descriptor) if isinstance(descriptor, int) else -1), value


def _encode_fields(count: int, fields: bytes) -> bytes:
    """Encode a list of fields that are encoded already."""
    if len(fields) < 255 and count < 256:  # noqa: PLR2004 (the size has one byte, and counts the count)
        return bytes((_LIST8, len(fields) + 1, count)) + fields
    return _pack_list32(_LIST32, len(fields) + 4, count) + fields


def encode_header(header: Header | None) -> bytes:
    """Encode a header section; nothing for none. The same few headers come again and again."""
    if header is None:
        return b""
    return _encode_header(header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count)


@lru_cache(maxsize=1024)
def _encode_header(*fields: int | None) -> bytes:
    return encode_composite(Header(*fields))  # type: ignore[arg-type]


def encode_map_section(code: int, content: Map | None) -> bytes:
    """Encode annotations, application properties or a footer; nothing for an empty map."""
    return _SHORT + bytes((code,)) + encode_map(content) if content else b""


def encode_data_section(payload: bytes) -> bytes:
    """Encode one data section of a body."""
    return _data_head(len(payload)) + payload


def _data_head(size: int) -> bytes:
    return _pack_short(0x00, 0x53, 0x75, 0xA0, size) if size < 256 else _pack_long(0x00, 0x53, 0x75, 0xB0, size)  # noqa: PLR2004


def encode_value_section(value: Value) -> bytes:
    """Encode a body of one value."""
    return b"\x00\x53\x77" + encode(value)


def build_message(
    body: bytes = b"",
    *,
    header: Header | None = None,
    message_annotations: Map | None = None,
    properties: Properties | None = None,
    application_properties: Map | None = None,
) -> bytes:
    """Encode a message around body sections that are encoded already."""
    return b"".join(
        (
            encode_header(header),
            encode_map_section(MESSAGE_ANNOTATIONS, message_annotations),
            b"" if properties is None else encode_composite(properties),
            encode_map_section(APPLICATION_PROPERTIES, application_properties),
            body,
        )
    )


def split_batch(payload: bytes) -> list[bytes]:
    """Return the encoded messages of a transfer with :data:`~pairbus.amqp.performatives.BATCH_FORMAT`."""
    return Message(payload).data_sections()


def build_batch(messages: Iterable[bytes], envelope: bytes = b"") -> bytes:
    """Encode messages as one batch; ``envelope`` is sections (annotations, properties) that go before them."""
    parts = [envelope]
    for message in messages:
        parts += _data_head(len(message)), message
    return b"".join(parts)
