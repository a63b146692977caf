"""XML as it comes: what is read, and what is refused before it can cost anything."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.admin.documents import description, tag, text
from pairbus.broker.admin.xml import ATOM, CONNECT, MAX_BODY, MAX_DEPTH, XmlError, parse

BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<entry>&b;</entry>"""
REFUSED = {
    "a bomb of entities": BOMB,
    "an entity from a file": b'<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/passwd">]><e>&x;</e>',
    "a document type from elsewhere": b'<!DOCTYPE e SYSTEM "http://127.0.0.1/e.dtd"><e/>',
    "a document type without anything": b"<!DOCTYPE e><e/>",
    "a parameter entity": b'<!DOCTYPE e [<!ENTITY % p "x"> %p;]><e/>',
    "an entity that nobody has declared": b"<e>&x;</e>",
    "nothing": b"",
    "half of it": b"<e><f>",
    "two of them": b"<e/><e/>",
    "a prefix that nobody has declared": b"<x:e/>",
    "an encoding that nobody knows": b'<?xml version="1.0" encoding="x-klingon"?><e/>',
    "an encoding of many bytes": b'<?xml version="1.0" encoding="utf-7"?><e/>',
    "bytes that are not what they say": b'<?xml version="1.0" encoding="utf-8"?><e>\xff</e>',
    "a character that XML cannot have": b"<e>\x01</e>",
    "an attribute twice": b'<e a="1" a="2"/>',
    "nesting without end": b"<e>" * 100_000,
    "nesting one too deep": b"<e>" * (MAX_DEPTH + 1) + b"</e>" * (MAX_DEPTH + 1),
    "more than it may be": b"<e>" + b" " * MAX_BODY + b"</e>",
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(body: bytes) -> None:
    with pytest.raises(XmlError):
        parse(body)


def test_namespaces_attributes_and_text() -> None:
    root = parse(
        f'<a:entry xmlns:a="{ATOM}" xmlns="{CONNECT}"><!-- no matter -->'
        '<Rule xmlns:x="http://www.w3.org/2001/XMLSchema-instance" x:type="y:int" plain="p">'
        "1 &lt; <![CDATA[2 & 3]]></Rule>"
        "</a:entry>".encode()
    )
    assert (root.namespace, root.name) == (ATOM, "entry")
    (rule,) = root
    assert (rule.namespace, rule.name, rule.type, rule.text) == (CONNECT, "Rule", "int", "1 < 2 & 3")
    assert rule.attributes["plain"] == "p"
    assert root.find("Rule") is None, "another namespace"


def test_an_element_that_may_come_once() -> None:
    root = parse(b"<e><f>1</f><f>2</f></e>")
    with pytest.raises(XmlError, match="'f' occurs more than once in 'e'"):
        root.find("f")


def test_other_encodings() -> None:
    assert parse('<?xml version="1.0" encoding="utf-16"?><e>ü</e>'.encode("utf-16")).text == "ü"


@given(st.text())
def test_any_text_is_written_so_that_it_can_be_read(value: str) -> None:
    read = parse(tag("e", text(value)).encode()).text
    assert len(read) == len(value)
    assert all(one in (other, "\ufffd") for one, other in zip(read, value, strict=True))


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")))
def test_text_without_control_characters_is_read_as_it_was(value: str) -> None:
    assert parse(description("e", tag("f", text(value))).encode()).children[0].text == value


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    with contextlib.suppress(XmlError):
        parse(b"<e>" + body)
