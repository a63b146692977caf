"""P2: a pairing that fails leaves the factory unpaired and usable."""

import asyncio
import importlib.util

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from tests.client.conftest import Play
from tests.client.stage import Stage, texts

from pairbus.errors import OptionError
from pairbus.links.native.endpoint import endpoint_of, verifying


def test_p2_a_pairing_whose_syphon_cannot_start_leaves_the_factory_unpaired(
    play_aio: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(stage: Stage) -> None:
        def broken(*_args: object, **_options: object) -> None:
            raise FileNotFoundError("ca.pem")

        before = len(asyncio.all_tasks())
        with monkeypatch.context() as patch:
            patch.setattr("pairbus.client.factory.transport_to", broken)
            with pytest.raises(FileNotFoundError):
                await stage.pair(enable_syphon=True)
        assert not stage.factory.is_paired
        assert len(asyncio.all_tasks()) == before
        async with stage.factory.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("unpaired"))
        await stage.pair(enable_syphon=True)
        assert stage.factory.is_paired
        assert texts(await stage.take()) == ["unpaired"]

    play_aio(scenario, pairing={"pair": False})


def test_p2_what_can_never_work_names_its_cure(play_aio: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> None:
        return None

    async def scenario(stage: Stage) -> None:
        client = stage.factory.make_client(transport_type=TransportType.AmqpOverWebsocket)
        with monkeypatch.context() as patch:
            patch.setattr(importlib.util, "find_spec", missing)
            with pytest.raises(OptionError, match="pairbus\\[websocket\\]"):
                endpoint_of(client)
        with pytest.raises(OptionError, match="connection_verify"):
            verifying("/no/such/file.pem")

    play_aio(scenario, pairing={"pair": False})
