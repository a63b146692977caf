"""RabbitMQ from Debian's package, with its AMQP 1.0 plugin, started and stopped by the tests."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.packages import install
from tests.support.ports import free_port

from pairbus.amqp import SaslClient
from pairbus.amqp.performatives import SETTLE_FIRST
from pairbus.links.native.endpoint import Endpoint

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
USER = "interop"
QUEUES = ("orders", "bills")


def missing() -> str | None:
    """Tell why RabbitMQ cannot be had here, if so."""
    if not SERVER.exists():
        return "rabbitmq-server is not installed (Debian: apt install rabbitmq-server)"
    return None if shutil.which("epmd") else "epmd is not on the path: Erlang is not installed whole"


class RabbitMQ:
    """One node with durable queues, and a port mapper of its own, on ports that nobody else has."""

    def __init__(self, data: Path) -> None:
        self.port, distribution, mapper = free_port(), free_port(), free_port()
        plugins, definitions, config = data / "plugins", data / "definitions.json", data / "rabbitmq.conf"
        plugins.write_text("[rabbitmq_amqp1_0].")
        permission = {"user": USER, "vhost": "/", "configure": ".*", "read": ".*", "write": ".*"}
        queue: dict[str, object] = {"vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        definitions.write_text(
            json.dumps(
                {
                    "vhosts": [{"name": "/"}],
                    "users": [{"name": USER, "password": USER, "tags": "administrator"}],
                    "permissions": [permission],
                    "queues": [{"name": name, **queue} for name in QUEUES],
                }
            )
        )
        config.write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\nload_definitions = {definitions}\n")
        self._environment = {
            **os.environ,
            "HOME": str(data),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"interop-{self.port}@localhost",
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_LOG_BASE": str(data / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
        }
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        epmd = shutil.which("epmd")
        assert epmd is not None
        self._mapper = subprocess.Popen([epmd], env=self._environment)  # ours, so that none is left behind
        self.start()
        return self

    def start(self) -> None:
        """Start the node, and return when it takes connections."""
        self._server = subprocess.Popen(
            [SERVER], env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._server.stdout is not None
        said: list[bytes] = []
        for line in self._server.stdout:
            said.append(line)
            if b"Starting broker... completed" in line:
                break
        else:
            raise RuntimeError(f"RabbitMQ did not start: {b''.join(said[-20:]).decode()}")

    def stop(self) -> None:
        """Stop the node in order."""
        assert self._server is not None
        self._server.terminate()
        self._end(self._server)

    @staticmethod
    def _end(process: "subprocess.Popen[bytes]") -> None:
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._mapper is not None:
            self._mapper.kill()
            self._end(self._mapper)

    @property
    def endpoint(self) -> Endpoint:
        """Where it is. It refuses rcv-settle-mode second, so settlements are not confirmed."""
        return Endpoint(
            "localhost",
            "127.0.0.1",
            self.port,
            sasl=lambda: SaslClient("PLAIN", username=USER, password=USER),
            addresses=lambda entity: f"/amq/queue/{entity}",
            settle_mode=SETTLE_FIRST,
        )


if __name__ == "__main__" and missing() is not None:
    install("rabbitmq-server")
