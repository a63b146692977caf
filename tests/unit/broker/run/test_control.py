"""Where a broker takes orders: a directory that is this user's alone."""

import tempfile
from pathlib import Path

import pytest

from pairbus.broker.run.control import ControlError, directory


def test_the_directory_of_sockets_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = directory()
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o750)
    with pytest.raises(ControlError, match="0700"):
        directory()


def test_the_directory_of_sockets_is_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = directory()
    elsewhere = place.rename(tmp_path / "elsewhere")
    place.symlink_to(elsewhere)
    with pytest.raises(ControlError, match="must be yours alone"):
        directory()
