"""The documents of the administration's answers: entries, feeds and errors."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from pairbus.broker.admin.values import time_text
from pairbus.broker.admin.xml import ATOM, CONNECT, INSTANCE

ENTRY_TYPE: Final = "application/atom+xml;type=entry;charset=utf-8"
FEED_TYPE: Final = "application/atom+xml;type=feed;charset=utf-8"
ERROR_TYPE: Final = "application/xml; charset=utf-8"

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entity as an answer has it.

    :ivar uri: where it is.
    :ivar content: its description, XML.
    :ivar published: when it was made, in milliseconds since the epoch; None: that is not told.
    :ivar author: the namespace, which the cloud tells of some kinds only.
    """

    title: str
    uri: str
    content: str
    updated: int
    published: int | None = None
    author: str | None = None


def text(value: str) -> str:
    """Return text as it stands in XML; characters that XML cannot have are replaced."""
    return escape(_NOT_XML.sub("\ufffd", value), {"\r": "&#xD;", '"': "&quot;"})


def tag(name: str, content: str) -> str:
    """Return an element with content that is XML already."""
    return f"<{name}>{content}</{name}>"


def description(name: str, content: str) -> str:
    """Return a description: the element in an entry that tells what an entity is like."""
    return f'<{name} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{content}</{name}>'


def entry_document(entry: Entry) -> bytes:
    """Write one entry."""
    return _entry(entry, f' xmlns="{ATOM}"').encode()


def feed_document(title: str, uri: str, now: int, entries: Iterable[Entry], following: str | None = None) -> bytes:
    """Write a feed.

    :param following: where the rest of it is; None: this is the end.
    """
    rest = "" if following is None else _link("next", following)
    content = "".join(_entry(entry, f' xml:base="{text(uri)}"') for entry in entries)
    return (
        f'<feed xmlns="{ATOM}"><title type="text">{text(title)}</title><id>{text(uri)}</id>'
        f"<updated>{_seconds(now)}</updated>{_link('self', uri)}{rest}{content}</feed>"
    ).encode()


def nothing_there(now: int) -> bytes:
    """Write what the cloud answers to one who asks for an entity that is not there: a feed without entries."""
    return (
        f'<feed xmlns="{ATOM}"><title type="text">Publicly Listed Services</title><subtitle type="text">This is the '
        f"list of publicly-listed services currently available.</subtitle><id>uuid:0;id=0</id>"
        f"<updated>{_seconds(now)}</updated><generator>Service Bus 1.1</generator></feed>"
    ).encode()


def error_document(status: int, detail: str) -> bytes:
    """Write what went wrong."""
    return tag("Error", tag("Code", str(status)) + tag("Detail", text(detail))).encode()


def _entry(entry: Entry, attributes: str) -> str:
    published = "" if entry.published is None else tag("published", _seconds(entry.published))
    author = "" if entry.author is None else tag("author", tag("name", text(entry.author)))
    return (
        f'<entry{attributes}><id>{text(entry.uri)}</id><title type="text">{text(entry.title)}</title>{published}'
        f"<updated>{_seconds(entry.updated)}</updated>{author}{_link('self', entry.uri)}"
        f'<content type="application/xml">{entry.content}</content></entry>'
    )


def _link(relation: str, uri: str) -> str:
    return f'<link rel="{relation}" href="{text(uri)}"/>'


def _seconds(time: int) -> str:
    return time_text(time // 1000 * 1000)
