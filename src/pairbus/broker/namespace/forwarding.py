"""Forwarding from entity to entity: what may be forwarded where, and what becomes of a message that cannot be.

A message moves in one transaction: it is stored at its target and removed here, or neither. What the target cannot take
now, because it is full, stays to be tried again. What it will never take goes to the transfer dead-letter queue of its
owner, with the reason, and does not keep back the messages behind it.
"""

import logging
from collections.abc import Iterator
from typing import Final

from pairbus.broker.entities.message import Held, dead_lettered, forwarded
from pairbus.broker.entities.queue import Queue
from pairbus.broker.entities.schedule import RETRY
from pairbus.broker.entities.topic import Topic
from pairbus.broker.namespace.node import DEAD_LETTER, QueueNode
from pairbus.broker.namespace.registry import Registry
from pairbus.broker.refusals import Answer, RefusedError, goes_round, is_passing, too_many_hops
from pairbus.broker.store.base import EntityKind

MAX_HOPS: Final = 4
"""How often a message is forwarded, at most."""
_SUBSCRIPTIONS: Final = "/subscriptions/"

_LOGGER = logging.getLogger(__name__)


class Forwarding:
    """Forwards the messages of one namespace."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._round: dict[str, bool] = {}
        """By the path of a subscription: whether what it forwards comes back to its topic."""
        self._version = 0
        registry.forward = self.forward

    def forward(self, node: QueueNode) -> None:
        """Move what can be received from a queue to where it forwards to, in its order."""
        queue, now = node.queue, self._registry.clock()
        while now >= node.forward_at and (held := queue.next_to_forward(now)) is not None:
            try:
                message = forwarded(held, now)
                if message.hops > MAX_HOPS:
                    raise too_many_hops(MAX_HOPS)
                self._target(node).send([message], now, self._when_durable(node, held, now))
            except RefusedError as refused:
                if is_passing(refused):
                    queue.contents.put_back(held)
                    return
                self._give_up(node, held, now, refused)
            queue.hand_over(held)

    def _give_up(self, node: QueueNode, held: Held, now: int, refused: RefusedError) -> None:
        """Give a message that cannot be forwarded to the transfer dead-letter queue."""
        path = node.queue.path
        _LOGGER.info("%s: message %d cannot be forwarded: %s", path, held.sequence, refused.description)
        owner = self._registry.get(path.lower().removesuffix(DEAD_LETTER)).queue
        payload = dead_lettered(held.payload, refused.condition, refused.description, path)
        transfer_dead = self._registry.transfer_dead(owner, for_message=True)
        transfer_dead.receive_dead(payload, held.deliveries, now, self._when_durable(node, held, now))

    def _when_durable(self, node: QueueNode, held: Held, now: int) -> Answer:
        def answer(refused: RefusedError | None) -> None:
            if refused is not None:
                node.forward_at = now + RETRY
            node.queue.handed_over(held, now, refused)

        return answer

    def _target(self, node: QueueNode) -> Queue | Topic:
        target = self._registry.get_destination(node.forward_to or "")
        if node.row.kind == EntityKind.SUBSCRIPTION and self._goes_round(node.queue.path, target):
            raise goes_round(node.queue.path, target.path)
        return target

    def _goes_round(self, path: str, target: Queue | Topic) -> bool:
        """Tell whether what a subscription forwards comes back to its topic.

        Four hops would end that too, but each time round there are as many copies more as the topic has such
        subscriptions. A circle of queues does no such harm: there it is the hops that end it.
        """
        if self._version != self._registry.version:
            self._version = self._registry.version
            self._round.clear()
        known = self._round.get(path)
        if known is None:
            topic = self._registry.find_topic(path.lower().rpartition(_SUBSCRIPTIONS)[0])
            reached: set[Queue | Topic] = set()
            found: set[Queue | Topic] = {target}
            while found:
                reached |= found
                found = {further for each in found for further in self._targets_of(each)} - reached
            known = self._round[path] = topic in reached
        return known

    def _targets_of(self, at: Queue | Topic) -> Iterator[Queue | Topic]:
        queues = [at] if isinstance(at, Queue) else [subscription.queue for subscription in at.subscriptions]
        for queue in queues:
            target = self._registry.find_destination(queue.settings.forward_to or "")
            if target is not None:
                yield target
