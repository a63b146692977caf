"""A client's link that sends to an entity."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pairbus.amqp import AmqpError, ReceiverLink, split_batch
from pairbus.amqp.events import Delivery
from pairbus.amqp.performatives import ACCEPTED, BATCH_FORMAT, Error, Rejected
from pairbus.broker.entities.message import Incoming, read_incoming
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.topic import Topic
from pairbus.broker.faults.board import FaultKind
from pairbus.broker.meter.metering import LinkMeter, Sends
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.refusals import RefusedError, idle, too_large

Changed: TypeAlias = Callable[[], None]
"""Told when a connection has something to send that it did not have before."""

CREDIT = 1000
"""What a sender is granted; filled again at half."""
REFUSABLE = 4 * 1024 * 1024
"""Bytes beyond its size up to which a message is refused by itself; a larger one detaches the link."""


class SendingNode:
    """Takes messages into a queue or a topic; each is answered once it is durable.

    :ivar used_at: when a message came last, or the link was attached.
    """

    def __init__(
        self, namespace: Namespace, entity: Queue | Topic, link: ReceiverLink, changed: Changed, meter: LinkMeter
    ) -> None:
        self._namespace = namespace
        self._entity = entity
        self._link = link
        self._changed = changed
        self._sent = Sends(meter)
        self.used_at = namespace.clock()

    def attached(self) -> None:
        """Begin."""
        self._link.accept(max_message_size=self._entity.settings.max_message_bytes)
        self._link.max_message_size += REFUSABLE  # the SDK reads why from a refusal, not from a detach
        self._link.grant(CREDIT)
        self._entity.publishers[self] = None

    def on_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """Take what came together: single messages in one go, if there is nothing wrong with any of them."""
        self.used_at = self._namespace.clock()
        if len(deliveries) == 1 or not self._take_all(deliveries):
            for delivery in deliveries:
                self.on_delivery(delivery)

    def _take_all(self, deliveries: Sequence[Delivery]) -> bool:
        """Take many single messages with one answer; tell whether that went: if not, each is looked at on its own."""
        link, limit = self._link, self._entity.settings.max_message_bytes
        if self._namespace.faults or any(
            delivery.message_format == BATCH_FORMAT or len(delivery.payload) > limit for delivery in deliveries
        ):
            return False

        def answer(refused: RefusedError | None) -> None:
            outcome = ACCEPTED if refused is None else rejected(refused.error)
            for delivery in deliveries:
                if not delivery.settled:
                    link.settle(delivery, outcome)
            self._sent.ended(messages, refused)
            self._changed()

        try:
            messages = [read_incoming(delivery.payload) for delivery in deliveries]
            self._entity.send(messages, self._namespace.clock(), answer)
        except (RefusedError, AmqpError):
            return False
        if link.credit < CREDIT // 2:
            link.grant(CREDIT)
        return True

    def on_delivery(self, delivery: Delivery) -> None:
        """Take a message or a batch."""
        link, faults = self._link, self._namespace.faults
        messages: list[Incoming] = []

        def answer(refused: RefusedError | None) -> None:
            if not delivery.settled and not (faults and faults.find(FaultKind.LOSE_ANSWERS, self._entity.path)):
                link.settle(delivery, ACCEPTED if refused is None else rejected(refused.error))
            self._sent.ended(messages, refused)
            self._changed()

        if link.credit < CREDIT // 2:
            link.grant(CREDIT)
        try:
            if faults:
                faults.check(self._entity.path, sends=True)
            limit = self._entity.settings.max_message_bytes
            if len(delivery.payload) > limit:
                raise too_large(len(delivery.payload), limit)
            messages += _messages(delivery)
            self._entity.send(messages, self._namespace.clock(), answer)
        except RefusedError as refused:
            answer(refused)
        except AmqpError as error:
            answer(RefusedError(error.condition, error.description))

    def let_go(self) -> None:
        """End: it was idle for too long."""
        self._link.detach(idle(self._link.name, "publisher").error)

    def send_away(self, refused: RefusedError) -> None:
        """End: the entity is gone. One of the same name that is made later is another."""
        self._link.detach(refused.error)
        self._changed()

    def detached(self) -> None:
        """End."""
        self._entity.publishers.pop(self, None)


def rejected(error: Error) -> Rejected:
    """Return an outcome that the SDK can read: it wants all three fields of the error."""
    return Rejected(Error(error.condition, error.description, error.info or {}))


def _messages(delivery: Delivery) -> list[Incoming]:
    if delivery.message_format == BATCH_FORMAT:
        return [read_incoming(payload) for payload in split_batch(delivery.payload)]
    return [read_incoming(delivery.payload)]
