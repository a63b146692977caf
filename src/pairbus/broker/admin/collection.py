"""What the kinds of entities have in common when they are listed, made, changed and deleted."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import quote

from pairbus.broker.admin.descriptions import Form, Kind, counts
from pairbus.broker.admin.documents import Entry
from pairbus.broker.admin.problems import ProblemError, no_destination, unauthorized
from pairbus.broker.admin.validation import check_settings
from pairbus.broker.admin.values import time_text
from pairbus.broker.admin.xml import Element
from pairbus.broker.entities.runtime import Runtime
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.refusals import Answer, RefusedError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminContext:
    """A namespace as one client sees it.

    :ivar host: the name under which the client knows it.
    :ivar version: of the API that the client speaks.
    :ivar changed: is told when something was changed and is to become durable.
    :ivar may_forward: tells why messages may not be forwarded to a path, which a property names; None: they may.
    """

    namespace: Namespace
    host: str
    version: str
    changed: Callable[[], None]
    may_forward: Callable[[str, str], str | None]

    def uri(self, path: str) -> str:
        """Return where something is."""
        return f"sb://{self.host}/{quote(path, safe='/$')}?api-version={quote(self.version)}"

    async def carry_out(self, change: Callable[[Answer], None]) -> None:
        """Change something, and return when that is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answer(refused: RefusedError | None) -> None:
            if done.done():
                return  # whoever has asked is gone
            if refused is None:
                done.set_result(None)
            else:
                done.set_exception(refused)

        change(answer)
        self.changed()
        await done


class Collection(ABC, Generic[T]):
    """The entities of one kind: those of the namespace, or those below another entity.

    :ivar element: the name of their description.
    """

    element: ClassVar[str]

    def __init__(self, context: AdminContext) -> None:
        self.context = context
        self.namespace = context.namespace

    @abstractmethod
    def all(self) -> Sequence[T]:
        """Return all of them, by name."""

    @abstractmethod
    def find(self, name: str) -> T | None:
        """Return one of them."""

    @abstractmethod
    def entry(self, item: T) -> Entry:
        """Tell what one of them is like."""

    @abstractmethod
    async def create(self, name: str, description: Element) -> None:
        """Make one."""

    @abstractmethod
    async def update(self, item: T, description: Element) -> None:
        """Change one."""

    @abstractmethod
    async def delete(self, item: T) -> None:
        """Delete one."""

    @abstractmethod
    def exists(self, name: str) -> ProblemError:
        """Return what is said to one who makes what is there already."""

    @abstractmethod
    def missing(self, name: str, *, to_update: bool = False) -> ProblemError:
        """Return what is said to one who changes or deletes what is not there."""

    def settings(self, kind: Kind, description: Element, old: object | None = None) -> dict[str, Any]:
        """Return the settings in a description, checked.

        What an update does not name stays as it is, except texts and paths: they are nothing then.

        :param old: the settings before the update; None: the entity is to be made.
        """
        values = kind.read(description)
        check_settings(kind, values, old)
        for each in kind.properties:
            if each.form is Form.PATH and values.get(each.setting) is not None:
                self._check_destination(each.element, values[each.setting], old and getattr(old, each.setting))
            if old is not None and each.form in (Form.PATH, Form.TEXT):
                values.setdefault(each.setting, None)
        return values

    def _check_destination(self, element: str, path: str, before: object) -> None:
        if path == before:
            return
        refused = self.context.may_forward(element, path)
        if refused is not None:
            raise unauthorized(refused)
        if self.namespace.entities.find_destination(path) is None:
            raise no_destination(element, path)

    def told(self, runtime: Runtime, **more: str) -> Mapping[str, str]:
        """Return the elements of a description that are no settings, as far as most kinds have them."""
        return {
            "SizeInBytes": str(runtime.size_in_bytes),
            "MessageCount": str(runtime.total_message_count),
            "IsAnonymousAccessible": "false",
            "CreatedAt": time_text(runtime.created_at),
            "UpdatedAt": time_text(runtime.updated_at),
            "AccessedAt": time_text(runtime.accessed_at or None),
            "CountDetails": counts(runtime),
            "EntityAvailabilityStatus": "Available",
            **more,
        }
