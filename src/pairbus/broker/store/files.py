"""Files and directories of a store: readable by their owner only, and durable."""

import os
from pathlib import Path


def make_directory(directory: Path) -> None:
    """Make a directory that is not there, for its owner only, and make it durable; one that is there stays as it is."""
    missing = [part for part in (directory, *directory.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(mode=0o700, exist_ok=True)
        sync_directory(part.parent)


def sync_directory(directory: Path) -> None:
    """Make durable which files a directory has."""
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def keep_private(path: Path) -> None:
    """Let only its owner read a file, which is made if it is not there. What SQLite puts beside it has its mode."""
    if not path.exists():
        path.touch(mode=0o600)
    elif os.name == "posix" and path.stat().st_mode & 0o077 and path.stat().st_uid == os.geteuid():
        path.chmod(path.stat().st_mode & 0o700)
