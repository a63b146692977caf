"""What comes with the package beside the code: its types, its version, completion; and what an extra would bring."""

import os
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

from pairbus import __version__, cli
from pairbus.extras import MODULES, extra_with

PAIRBUS = Path(sys.executable).with_name("pairbus")


def test_the_package_is_typed_and_knows_its_version() -> None:
    assert resources.files("pairbus").joinpath("py.typed").is_file()
    assert metadata.version("pairbus") == __version__
    assert set(metadata.metadata("pairbus").get_all("Provides-Extra") or ()) >= {"broker", "spark", "dashboard", "all"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    """As the script does that ``pairbus --install-completion`` installs."""
    given = {"COMP_WORDS": "pairbus de", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "pairbus de"}
    environment = {
        **os.environ,
        **given,
        "_PAIRBUS_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    told = subprocess.run([PAIRBUS], check=False, capture_output=True, text=True, env=environment)
    assert "deadletter" in told.stdout
    assert "demo" in told.stdout
    assert "broker" not in told.stdout


@pytest.mark.parametrize(
    ("module", "extra"), [("lark.exceptions", "broker"), ("pyspark", "spark"), ("nicegui", "dashboard")]
)
def test_a_command_whose_extra_is_not_installed_says_which(
    module: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(**_options: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(cli, "app", missing)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {module} is not installed: pip install 'pairbus[{extra}]'\n"
    assert extra_with("pairbus.nowhere") is None


def without(modules: tuple[str, ...], program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a process in which these modules are not installed."""
    hiding = (
        "import importlib.machinery\n"
        "finder = importlib.machinery.PathFinder\n"
        "old = finder.find_spec\n"
        "finder.find_spec = classmethod(lambda cls, name, path=None, target=None:\n"
        f"    None if name.partition('.')[0] in {modules!r} else old(name, path, target))\n"
    )
    return subprocess.run([sys.executable, "-c", hiding + program], check=False, capture_output=True, text=True)


COMMANDS = {"broker": ("broker", "demo"), "spark": ("demo", "report x --out y", "syphon"), "dashboard": ("dashboard",)}


@pytest.mark.parametrize(("extra", "command"), [(extra, each) for extra, all_ in COMMANDS.items() for each in all_])
def test_a_command_refuses_at_once_without_any_module_of_its_extra(extra: str, command: str) -> None:
    program = f"import sys; sys.argv = ['pairbus', *{command.split()!r}]; from pairbus.cli import main; main()"
    for module in MODULES[extra]:
        ended = without((module,), program)
        assert ended.returncode == 2
        assert f"needs {module}, which is not installed: pip install 'pairbus[{extra}]'" in ended.stderr


@pytest.mark.parametrize(
    "program",
    [
        "from pairbus.testing import EmbeddedBroker",
        "from pairbus.broker.filters.parsing import parse\nparse('a = 1', 'filter')",
    ],
)
def test_the_embedded_broker_and_filters_name_the_extra(program: str) -> None:
    ended = without(MODULES["broker"], program)
    assert "MissingExtraError" in ended.stderr
    assert "pip install 'pairbus[broker]'" in ended.stderr


@pytest.mark.parametrize("module", ["opentelemetry", "prometheus"])
def test_telemetry_names_its_extra(module: str) -> None:
    ended = without(MODULES["telemetry"], f"import pairbus.instrument.{module}")
    assert "pip install pairbus[telemetry]" in ended.stderr


def test_without_any_extra_the_client_and_its_commands_work() -> None:
    hidden = tuple(module for modules in MODULES.values() for module in modules)
    program = "import sys, pairbus, pairbus.aio; sys.argv = ['pairbus', 'cost']; from pairbus.cli import main; main()"
    assert without(hidden, program).returncode == 0
