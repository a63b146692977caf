"""The files under deploy/ cannot be run here: they are read, and held against what they name."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from pairbus.broker.config.options import from_file
from pairbus.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def check_command(words: list[str]) -> None:
    """Check that there is such a command, with such options."""
    commands: dict[str, Any] = getattr(get_command(app), "commands", {})
    assert words[0] in commands, f"there is no pairbus {words[0]}"
    known = {option for each in commands[words[0]].params for option in each.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_compose_file_names_what_there_is() -> None:
    document = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    services = document["services"]
    assert set(services) == {"contoso", "fabrikam", "syphon"}
    for service in services.values():
        check_command(service["command"])
        assert (DEPLOY / "docker" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            exists = (DEPLOY / "docker" / source).is_file() if source.startswith(".") else source in document["volumes"]
            assert exists, source
    for variable, name in (("PRIMARY", "contoso"), ("SECONDARY", "fabrikam")):
        file = DEPLOY / "docker" / f"{name}.json"
        assert [each.name for each in from_file(file, port=0, host="127.0.0.1", data=None).namespaces] == [name]
        (namespace,) = json.loads(file.read_text(encoding="utf-8"))["UserConfig"]["Namespaces"]
        (root,) = namespace["SharedAccessPolicies"]
        told = services["syphon"]["environment"][f"PAIRBUS_{variable}_CONNECTION_STRING"]
        assert f"sb://{name}:5672;" in told
        assert f"SharedAccessKeyName={root['Name']};SharedAccessKey={root['PrimaryKey']};" in told


def test_the_image_is_made_of_files_that_reach_its_builder() -> None:
    lines = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = [name for names in copies for name in names]
    admitted = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == admitted
    assert all((ROOT / name).exists() for name in copied)


def test_the_unit_runs_a_command_that_there_is() -> None:
    unit = (DEPLOY / "systemd" / "pairbus-syphon.service").read_text(encoding="utf-8")
    command = re.search(r"^ExecStart=\S+/pairbus (.*)$", unit, re.MULTILINE)
    assert command is not None
    check_command(shlex.split(command[1]))
    example = (DEPLOY / "systemd" / "syphon.env.example").read_text(encoding="utf-8")
    names = [line.partition("=")[0] for line in example.splitlines() if line and not line.startswith("#")]
    assert names == ["PAIRBUS_PRIMARY_CONNECTION_STRING", "PAIRBUS_SECONDARY_CONNECTION_STRING"]


@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_both_templates_and_their_page_give_the_same_rights(side: str) -> None:
    bicep = (DEPLOY / "azure" / "main.bicep").read_text(encoding="utf-8")
    section = bicep.partition(f"var {side}Policies = [")[2].partition("\n]")[0]
    by_bicep = {
        name: set(re.findall(r"'(\w+)'", rights))
        for name, rights in re.findall(r"name: '(\w+)', rights: \[(.*?)\]", section)
    }
    terraform = (DEPLOY / "terraform" / "main.tf").read_text(encoding="utf-8")
    by_terraform = {
        name: {right.title() for right, given in re.findall(r"(\w+) = (true|false)", rights) if given == "true"}
        for name, rights in re.findall(rf'"{side}/(\w+)"\s*= {{(.*?)}}', terraform)
    }
    page = (ROOT / "docs" / "how-to" / "infrastructure.md").read_text(encoding="utf-8")
    column = 2 if side == "primary" else 3
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    by_page = {row[1].strip(" `"): set(row[column].replace(" ", "").split(",")) - {""} for row in rows}
    assert by_bicep == by_terraform == {name: rights for name, rights in by_page.items() if rights}
