"""Checksums of what is stored, so that damage on the disk is noticed when it is read.

A message has two. ``content_crc`` is the CRC-32 of its body in the lower 32 bits, and that of its session id, if it has
one, above them. ``record_sum`` is a weighted sum of the other columns of its record: SQLite can compute it without a
function of ours, so that an index of a million rows is checked while it is read, and a change of one column adjusts the
sum by the difference. A bit that flips changes one of these numbers and not the other side of the comparison. A flip in
SQLite's own structures, a length or a column's type, moves several columns, and then the sum agrees by accident only;
or it makes an empty blob of a 0, which counts as 0 in the sum, and so the columns that can be 0 must be numbers.

CRC-32 takes 0.6 µs for 1 KB, BLAKE2 1.8 µs and MD5 2.7 µs: damage is no adversary.
"""

import sqlite3
from typing import Final
from zlib import crc32

_LOW: Final = (1 << 40) - 1
_TIME: Final = (1 << 50) - 1
"""The bits of a time that count: those up to the year 10000, and some; the sum has room in 64 bits."""
_CRC: Final = 0xFFFFFFFF

SUM: Final = (
    "(meta.key & 1099511627775) + (meta.key >> 40) * 3 + state * 5 + (enqueued & 1125899906842623) * 7 "
    "+ (ifnull(expires, -1) & 1125899906842623) * 11 + (ifnull(due, -1) & 1125899906842623) * 13 "
    "+ deliveries * 17 + size * 19 + (content_crc & 4294967295) * 23 + (content_crc >> 32) * 29"
)
"""What :func:`record_sum` computes, in SQL."""
IS_WHOLE: Final = (
    f"record_sum IS {SUM} AND max(state, deliveries, enqueued, size) <= 9223372036854775807 AND content_crc >> 32 = "
    "CASE WHEN session IS NULL THEN 0 ELSE session_crc(CAST(session AS BLOB)) END"
)
"""Whether a record is what was stored, in SQL: to SQLite, a text or a blob is larger than every number. The body is
checked by the store when it reads it."""


def session_crc(session: bytes) -> int:
    """Return the checksum of a session id, which is never 0."""
    return crc32(session) >> 1 or 1


def content_crc(session: str | None, body_crc: int) -> int:
    """Return the checksum of a message's content."""
    return body_crc if session is None else session_crc(session.encode()) << 32 | body_crc


def record_sum(  # noqa: PLR0917 SQLite calls it with the columns
    key: int, state: int, enqueued: int, expires: int | None, due: int | None, deliveries: int, size: int, content: int
) -> int:
    """Return the checksum of a message's record."""
    return (
        (key & _LOW)
        + (key >> 40) * 3
        + state * 5
        + (enqueued & _TIME) * 7
        + ((-1 if expires is None else expires) & _TIME) * 11
        + ((-1 if due is None else due) & _TIME) * 13
        + deliveries * 17
        + size * 19
        + (content & _CRC) * 23
        + (content >> 32) * 29
    )


def state_sum(entity: int, session: bytes, state: bytes) -> int:
    """Return the checksum of a session's state."""
    return crc32(b"%d\0%b\0%b" % (entity, session, state))


def entity_sum(number: int, next_sequence: int, path: str, kind: str, description: str) -> int:
    """Return the checksum of an entity."""
    texts = (text.encode("utf-8", "surrogatepass") for text in (path, kind, description))
    return _entity_sum(number, next_sequence, *texts)


def _entity_sum(number: int, next_sequence: int, path: bytes, kind: bytes, description: bytes) -> int:
    # The sequence is a summand: it is raised with each commit, and the sum with it, without reading the texts.
    return crc32(b"%d\0%b\0%b\0%b" % (number, path, kind, description)) + next_sequence * 3


def add_functions(connection: sqlite3.Connection) -> None:
    """Let SQL statements of a connection call these functions."""

    def content(session: str | None, body: bytes) -> int:
        return content_crc(session, crc32(body))

    connection.create_function("session_crc", 1, session_crc, deterministic=True)
    connection.create_function("content_crc", 2, content, deterministic=True)
    connection.create_function("record_sum", 8, record_sum, deterministic=True)
    connection.create_function("state_sum", 3, state_sum, deterministic=True)
    connection.create_function("entity_sum", 5, _entity_sum, deterministic=True)
