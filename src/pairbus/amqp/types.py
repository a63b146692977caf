"""AMQP's types where Python's own are not enough to tell them apart.

====================  =============================  ==================================
AMQP                  decoded as                     also encoded from
====================  =============================  ==================================
null, boolean         ``None``, ``bool``
ubyte, ushort, ...    :class:`UByte` ... :class:`Int`
long                  ``int``                        any other ``int`` subclass
float, double         :class:`Float`, ``float``
decimal32, 64, 128    :class:`Decimal32` ... (bits)
char, symbol          :class:`Char`, :class:`Symbol`
string, binary        ``str``, ``bytes``             ``bytearray``, ``memoryview``
timestamp             :class:`Timestamp`             an aware ``datetime``
uuid                  ``uuid.UUID``
list, map             ``list``, ``dict``             ``tuple``
array                 :class:`Array`
described             :class:`Described`
====================  =============================  ==================================

So what was decoded is encoded again as the same types. The wrappers compare and hash as the Python
values they are: ``Symbol("a") == "a"`` and ``UInt(1) == 1``.
"""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

Value: TypeAlias = Any
"""Any value of the table above."""


class UByte(int):
    """An unsigned 8-bit integer."""

    __slots__ = ()


class UShort(int):
    """An unsigned 16-bit integer."""

    __slots__ = ()


class UInt(int):
    """An unsigned 32-bit integer."""

    __slots__ = ()


class ULong(int):
    """An unsigned 64-bit integer."""

    __slots__ = ()


class Byte(int):
    """A signed 8-bit integer."""

    __slots__ = ()


class Short(int):
    """A signed 16-bit integer."""

    __slots__ = ()


class Int(int):
    """A signed 32-bit integer. A plain ``int`` is AMQP's 64-bit long."""

    __slots__ = ()


class Float(float):
    """A 32-bit floating point number. A plain ``float`` is AMQP's 64-bit double."""

    __slots__ = ()


class Timestamp(int):
    """A point in time: milliseconds since the Unix epoch, UTC."""

    __slots__ = ()

    @classmethod
    def of(cls, moment: dt.datetime) -> Self:
        """Return an aware ``moment`` in whole milliseconds; a naive one is refused."""
        if moment.tzinfo is None:
            raise ValueError(f"{moment!r} has no time zone; AMQP timestamps are UTC")
        return cls((moment - _EPOCH) // dt.timedelta(milliseconds=1))

    def to_datetime(self) -> dt.datetime:
        """Return the aware UTC moment; beyond the years 1 to 9999, ``OverflowError``."""
        return _EPOCH + dt.timedelta(milliseconds=self)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Char(str):
    """A single Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain, ASCII."""

    __slots__ = ()


class Decimal32(bytes):
    """The four bytes of an IEEE 754-2008 decimal32, kept as they are."""

    __slots__ = ()


class Decimal64(bytes):
    """The eight bytes of an IEEE 754-2008 decimal64, kept as they are."""

    __slots__ = ()


class Decimal128(bytes):
    """The sixteen bytes of an IEEE 754-2008 decimal128, kept as they are."""

    __slots__ = ()


@dataclass(slots=True, frozen=True)
class Described:
    """A value with a descriptor (a ulong or a symbol) that says what it means."""

    descriptor: Value
    value: Value


class Array(list[Value]):
    """Elements of one AMQP type.

    ``code`` is the element's constructor byte, in the widest form of its type (see ``decoder.WIDEST``), so that
    an empty array keeps its type; ``descriptor`` is that of described elements, whose plain values are
    then the elements.
    """

    __slots__ = ("code", "descriptor")

    def __init__(self, code: int, elements: Iterable[Value] = (), descriptor: Value = None) -> None:
        super().__init__(elements)
        self.code = code
        self.descriptor = descriptor

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Array):
            return (self.code, self.descriptor) == (other.code, other.descriptor) and super().__eq__(other)
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None
