"""One end of a link: what the two kinds, ``sender`` and ``receiver``, have in common.

A link that has ended is harmless: detaching, granting and settling on it do nothing, its credit is 0, and
sending raises :class:`~pairbus.amqp.conditions.AmqpError`.
"""

import enum
from typing import TYPE_CHECKING, Final

from pairbus.amqp.conditions import DETACH_FORCED
from pairbus.amqp.events import Event, LinkDetached
from pairbus.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Detach,
    Error,
    Map,
    Source,
    Symbols,
    Target,
)
from pairbus.amqp.types import Described, Symbol, Value

if TYPE_CHECKING:
    from pairbus.amqp.session import Session

SERIAL_MASK: Final = 0xFFFFFFFF
HALF: Final = 0x80000000
"""Ids and counts are serial numbers of 32 bits (RFC 1982): a difference of this or more is a step back."""


class LinkState(enum.Enum):
    """Where a link stands."""

    REQUESTED = "requested"
    """The peer's attach waits for our answer."""
    ATTACHING = "attaching"
    """Our attach waits for the peer's answer."""
    ATTACHED = "attached"
    DETACHING = "detaching"
    """Our detach waits for the peer's."""
    DETACHED = "detached"


class Link:
    """What both kinds of link have in common. ``context`` is the caller's own."""

    __slots__ = ("_reported", "context", "credit", "delivery_count", "handle", "name", "remote", "remote_handle",
                 "session", "state")  # fmt: skip

    role: bool

    def __init__(self, session: "Session", name: str, handle: int) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_handle: int | None = None
        self.remote: Attach | None = None
        self.state = LinkState.ATTACHING
        self.credit = 0
        self.delivery_count = 0
        self.context: Value = None
        self._reported = False

    def accept(
        self,
        *,
        source: Source | Described | None = None,
        target: Target | Described | None = None,
        max_message_size: int | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        properties: Map | None = None,
        offered_capabilities: Symbols | None = None,
    ) -> None:
        """Answer the peer's attach; what is not given is as the peer asked for it, its addresses byte for byte."""
        remote = self.remote
        if self.state is not LinkState.REQUESTED or remote is None:
            return
        self.state = LinkState.ATTACHED
        self.session.send(
            Attach(
                self.name,
                self.handle,
                self.role,
                remote.snd_settle_mode if snd_settle_mode is None else snd_settle_mode,
                remote.rcv_settle_mode if rcv_settle_mode is None else rcv_settle_mode,
                source or remote.source,
                target or remote.target,
                initial_delivery_count=self.delivery_count if self.role is SENDER else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                properties=properties,
            ),
        )

    def refuse(self, error: Error) -> None:
        """Refuse the link that the peer asked for: an attach without source and target, then a detach that says why."""
        if self.state is not LinkState.REQUESTED:
            return
        initial = self.delivery_count if self.role is SENDER else None
        refusal = Attach(self.name, self.handle, self.role, initial_delivery_count=initial)
        self.session.send(refusal)
        self.state = LinkState.ATTACHED
        self.detach(error)

    def detach(self, error: Error | None = None, *, closed: bool = True) -> None:
        """Detach, for good unless ``closed`` is false; :class:`LinkDetached` follows when the peer has answered."""
        if self.state is LinkState.REQUESTED:
            self.refuse(error or Error(DETACH_FORCED))
        elif self.state in {LinkState.ATTACHING, LinkState.ATTACHED}:
            self.state = LinkState.DETACHING
            self.credit = 0
            self.session.drop_backlog(self)
            self.session.send(Detach(self.handle, closed, error))

    @property
    def is_attached(self) -> bool:
        """Whether messages can flow."""
        return self.state is LinkState.ATTACHED

    def fail(self, events: list[Event], condition: Symbol, description: str) -> None:
        """Detach for a violation of the peer's; the caller hears of it at once."""
        error = Error(condition, description)
        self.detach(error)
        self.report_detached(events, error, closed=True, by_peer=False)

    def report_detached(self, events: list[Event], error: Error | None, *, closed: bool, by_peer: bool) -> None:
        """Tell the caller, once."""
        self.credit = 0
        if not self._reported:
            self._reported = True
            events.append(LinkDetached(self, error, closed, by_peer))

    def on_attach(self, attach: Attach) -> bool:
        """Take the peer's attach; tell whether the link is attached now on both sides."""
        self.remote = attach
        self.remote_handle = attach.handle
        if self.state is not LinkState.ATTACHING:
            return False
        refused = attach.source is None if self.role is RECEIVER else attach.target is None
        if refused:
            return False  # a detach with the reason follows
        self.state = LinkState.ATTACHED
        return True

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        """Take the peer's detach, and answer it unless it is an answer itself."""
        if self.state in {LinkState.ATTACHED, LinkState.ATTACHING}:
            self.session.drop_backlog(self)
            self.session.send(Detach(self.handle, detach.closed))
        elif self.state is LinkState.REQUESTED:
            self.refuse(Error(DETACH_FORCED, "detached before it was attached"))
        self.state = LinkState.DETACHED
        self.report_detached(events, detach.error, closed=detach.closed, by_peer=True)
