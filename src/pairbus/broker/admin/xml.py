"""XML as the administration reads it: elements and text, and nothing that could cost more than its bytes.

A document type declaration is refused, and with it every entity; bodies and nesting are limited.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate

MAX_BODY: Final = 256 * 1024
MAX_DEPTH: Final = 32

ATOM: Final = "http://www.w3.org/2005/Atom"
CONNECT: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"

_SEPARATOR: Final = " "
"""Between an element's namespace and its name; it occurs in neither."""


class XmlError(Exception):
    """A document that is not taken; the text says what is wrong with it."""


@dataclass(slots=True)
class Element:
    """One element.

    :ivar attributes: by name; those of another namespace than the element's as ``namespace name``.
    """

    namespace: str
    name: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: list["Element"] = field(default_factory=list["Element"])
    text: str = ""

    def __iter__(self) -> Iterator["Element"]:
        return iter(self.children)

    def find(self, name: str) -> "Element | None":
        """Return the child of a name, in the element's own namespace; a name that occurs twice is refused."""
        found = [child for child in self.children if child.name == name and child.namespace == self.namespace]
        if len(found) > 1:
            raise XmlError(f"the element '{name}' occurs more than once in '{self.name}'")
        return found[0] if found else None

    @property
    def type(self) -> str:
        """The ``type`` of XML Schema instances, without its prefix; empty: it has none."""
        return self.attributes.get(f"{INSTANCE}{_SEPARATOR}type", "").rpartition(":")[2]


def parse(body: bytes) -> Element:
    """Read a document."""
    if len(body) > MAX_BODY:
        raise XmlError(f"a body of {len(body)} bytes is larger than {MAX_BODY} bytes")
    reader = _Reader()
    try:
        reader.parser.Parse(body, True)  # noqa: FBT003 (the parser's own signature)
    except (ExpatError, LookupError, ValueError) as error:
        raise XmlError(f"the body is not well-formed XML: {error}") from None
    if reader.root is None:
        raise XmlError("the body has no element")
    return reader.root


class _Reader:
    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self.parser = ParserCreate(namespace_separator=_SEPARATOR)
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self._open) == MAX_DEPTH:
            raise XmlError(f"elements are nested more than {MAX_DEPTH} deep")
        namespace, _, name = tag.rpartition(_SEPARATOR)
        element = Element(namespace, name, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        self._open[-1].text += text

    @staticmethod
    def _refuse(*_declaration: object) -> int:
        raise XmlError("document type declarations and entities are not allowed")
