"""``pairbus broker``: the embedded broker, for a laptop or for CI."""

import asyncio
import gc
import json
import signal
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pairbus.cli.running import say_error
from pairbus.cli.terminal import console, line
from pairbus.extras import require

if TYPE_CHECKING:
    from pairbus.broker.config.options import BrokerConfig
    from pairbus.broker.faults.script import TimedOrder
    from pairbus.broker.run.running import Broker


def broker(
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="A namespace to serve, with a port of its own if it is to have one: contoso:5700."),
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="A queue to make if it is not there: contoso/orders, or just orders.")
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="A topic to make if it is not there: contoso/orders, or just orders.")
    ] = None,
    subscription: Annotated[
        list[str] | None,
        typer.Option(help="A subscription to make if it is not there, with its topic: contoso/orders/all."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The first namespace's port; the next ones follow. 0: any free one.")
    ] = 5672,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    data: Annotated[
        Path | None, typer.Option(file_okay=False, help="Keep everything in this directory. Without: in memory.")
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Start although acknowledged messages in --data cannot be read any more."),
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option(file_okay=False, help="Keep account of every operation in this directory.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A Config.json of Microsoft's emulator.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Speak TLS too, on the same port, with a certificate that is made.")
    ] = False,
    certificate: Annotated[Path | None, typer.Option(help="Speak TLS with this certificate, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="The certificate's private key, in PEM, without a password.")] = None,
    faults: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A YAML file of faults to play from the start.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="When ready, print one line of JSON per namespace instead of words.")
    ] = False,
) -> None:
    """Serve Service Bus namespaces from this machine, to the official SDK, with nothing but pip.

    The unmodified `azure-servicebus` SDK talks to it with the connection string that is shown. Messages survive
    `kill -9` when they are kept in a directory.

    Examples:
    `pairbus broker --queue orders` serves one namespace in memory on port 5672.

    `pairbus broker --subscription orders/all --subscription orders/audit` serves a topic with two subscriptions.

    `pairbus broker --namespace contoso --namespace fabrikam --queue contoso/orders --data DIR` serves two, durable.

    """
    require("broker", "pairbus broker")
    gc.disable()  # until it serves: what is imported and opened now is no garbage
    from pairbus.broker.config.options import TlsConfig, from_file, from_options
    from pairbus.broker.faults.script import read_script

    if config is not None:
        if namespace or queue or topic or subscription:
            raise typer.BadParameter(
                "give either --config, or --namespace, --queue, --topic and --subscription", param_hint="--config"
            )
        settings = from_file(config, port=port, host=host, data=data)
    else:
        settings = from_options(
            namespace or (), queue or (), topic or (), subscription or (), port=port, host=host, data=data
        )
    settings = replace(settings, ledger=ledger, accept_loss=accept_loss)
    if tls or certificate is not None or key is not None:
        settings = replace(settings, tls=TlsConfig(certificate, key))
    timed_orders = [] if faults is None else read_script(faults)
    asyncio.run(_serve(settings, timed_orders, as_json=as_json))


async def _serve(config: "BrokerConfig", timed_orders: "list[TimedOrder]", *, as_json: bool) -> None:
    from pairbus.broker.run.control import ControlServer
    from pairbus.broker.run.running import Broker

    running = Broker(config)
    control = ControlServer(running.obey)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    try:
        await running.start()
        await control.start()
    except OSError as error:
        say_error(f"{error}; choose another with --port")
        raise typer.Exit(2) from None
    _collect_garbage_less_often()
    _tell(running, as_json=as_json)
    running.play(timed_orders)
    await stop.wait()
    await control.stop()
    await running.stop()


def _collect_garbage_less_often() -> None:
    """A broker keeps many small objects that refer to nothing: looking through them again and again costs a tenth."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def _tell(running: "Broker", *, as_json: bool) -> None:
    for endpoint in running.endpoints.values():
        if as_json:
            print(json.dumps(asdict(endpoint)), flush=True)  # noqa: T201 (for machines)
        else:
            terminal = console()
            terminal.print(line((endpoint.namespace, "bold"), f" on port {endpoint.port}"))
            terminal.print(endpoint.connection_string, soft_wrap=True)
            if endpoint.tls_connection_string is not None:
                terminal.print(line(("with TLS: ", "dim"), endpoint.tls_connection_string), soft_wrap=True)
            if endpoint.ca_file is not None:
                terminal.print(line(("to trust: ", "dim"), str(endpoint.ca_file)), soft_wrap=True)
    if not as_json:
        console().print(line(("Ctrl+C ends it.", "dim")))
