"""What comes with the package beside the code: its types, its version, completion; and what an extra would bring."""

import os
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

from pairbus import __version__, cli
from pairbus.cli import running

PAIRBUS = Path(sys.executable).with_name("pairbus")


def test_the_package_is_typed_and_knows_its_version() -> None:
    assert resources.files("pairbus").joinpath("py.typed").is_file()
    assert metadata.version("pairbus") == __version__
    assert set(metadata.metadata("pairbus").get_all("Provides-Extra") or ()) >= {"broker", "spark", "dashboard", "all"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str) -> None:
    """As the script does that ``pairbus --install-completion`` installs."""
    given = {"COMP_WORDS": "pairbus de", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "pairbus de"}
    given |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_PAIRBUS_COMPLETE": f"complete_{shell}"}
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
    assert running.extra_with("pairbus.nowhere") is None
