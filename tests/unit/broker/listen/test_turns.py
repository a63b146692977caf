"""When a namespace does what came of listening to a client: within the turn, or soon."""

import asyncio
from collections.abc import Callable
from typing import cast

from pairbus.broker.entities.message import Incoming
from pairbus.broker.entities.settings import QueueSettings
from pairbus.broker.listen.connection import ServerConnection
from pairbus.broker.listen.server import NamespaceServer
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.refusals import RefusedError
from pairbus.broker.store.memory import MemoryStore


class Client(ServerConnection):
    """A client that only notes what the others do to it."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def flush(self) -> None:
        self.log.append(f"{self.name} hears")


class Scene:
    """A namespace on a store in memory, and what happened, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.server = cast("NamespaceServer", None)
        store = MemoryStore(lambda call: self.server.call_soon(call))  # noqa: PLW0108 (it is made later)
        self.namespace = Namespace("contoso", store, clock=lambda: 0, tokens=lambda: b"")
        self.server = NamespaceServer(self.namespace, asyncio.get_running_loop())
        self.namespace.queues.create("orders", QueueSettings(), self.answer("made"))
        self.namespace.queues.create("bills", QueueSettings(), self.answer("made too"))
        self.server.flush()
        self.log.clear()

    def answer(self, what: str, then: Callable[[], None] = lambda: None) -> Callable[[RefusedError | None], None]:
        def answer(refused: RefusedError | None) -> None:
            assert refused is None
            self.log.append(what)
            then()

        return answer

    def send(self, queue: str, what: str, then: Callable[[], None] = lambda: None) -> None:
        self.namespace.queues.get(queue).queue.send([Incoming(b"")], 0, self.answer(what, then))

    def client(self, name: str) -> Client:
        return Client(name, self.log)


def play(scene: Callable[[Scene], None], *, turns: int) -> list[str]:
    async def play() -> list[str]:
        made = Scene()
        scene(made)
        made.log.append("the end of the turn")
        for _ in range(turns):
            await asyncio.sleep(0)
        return made.log

    return asyncio.run(play())


def test_a_client_is_answered_in_the_turn_in_which_it_is_listened_to() -> None:
    def scene(made: Scene) -> None:
        made.server.begin_turn()
        made.send("orders", "stored")
        made.server.end_turn(made.client("sender"))

    assert play(scene, turns=3) == ["stored", "sender hears", "the end of the turn"]


def test_what_storing_leads_to_belongs_to_the_turn() -> None:
    def scene(made: Scene) -> None:
        made.server.begin_turn()
        made.send("orders", "stored", lambda: made.send("bills", "stored too"))
        made.server.end_turn(made.client("sender"))

    assert play(scene, turns=3) == ["stored", "stored too", "sender hears", "the end of the turn"]


def test_what_others_are_to_hear_may_gather_for_a_turn() -> None:
    def scene(made: Scene) -> None:
        receiver = made.client("receiver")
        for sender in (made.client("one"), made.client("other")):
            made.server.begin_turn()
            made.send("orders", "stored", lambda: made.server.stirred.add(receiver))
            made.server.end_turn(sender)

    listened = ["stored", "one hears", "stored", "other hears", "the end of the turn"]
    assert play(scene, turns=1) == [*listened, "receiver hears"]


def test_what_nobody_has_said_is_done_soon() -> None:
    def scene(made: Scene) -> None:
        made.send("orders", "stored")
        made.server.changed()

    assert play(scene, turns=1) == ["the end of the turn", "stored"]


def test_after_a_turn_changes_are_done_soon_again() -> None:
    def scene(made: Scene) -> None:
        made.server.begin_turn()
        made.server.end_turn(made.client("sender"))
        made.send("orders", "stored")
        made.server.changed()

    assert play(scene, turns=1) == ["sender hears", "the end of the turn", "stored"]
