"""The policies of a namespace itself, kept beside its messages; those of its entities are kept with them."""

import json
import os
from pathlib import Path
from typing import Any

from pairbus.broker.access.documents import ENTRY, from_entries, to_entries
from pairbus.broker.access.policies import ALL, ROOT, Policies, Policy, checked
from pairbus.broker.store.base import StoreError
from pairbus.broker.store.files import sync_directory
from pairbus.errors import OptionError


class Keyring:
    """The policies of a namespace; there is always one with all rights, :data:`ROOT`.

    :param file: where they are kept, readable to its owner only; None: in memory. What it has already stays.
    :param wanted: policies to have besides.
    :raises StoreError: the file cannot be used; the text says why, and what helps.
    """

    def __init__(self, file: Path | None, wanted: Policies) -> None:
        self._file = file
        self.policies = _read(file) if file is not None and file.exists() else ()
        had = {policy.name for policy in self.policies}
        policies = (*self.policies, *(policy for policy in wanted if policy.name not in had))
        if ROOT not in had | {policy.name for policy in wanted}:
            policies = (Policy(ROOT, ALL), *policies)
        if policies != self.policies:
            self.keep(policies)

    def keep(self, policies: Policies) -> None:
        """Have these policies from now on; returns when they are durable."""
        made = checked(policies)
        if not any(policy.name == ROOT and policy.rights == ALL for policy in made):
            raise OptionError("policies", [policy.name for policy in made], f"{ROOT}, with all rights, among them")
        if self._file is not None:
            _write(self._file, {ENTRY: to_entries(made)})
        self.policies = made


def _read(file: Path) -> Policies:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        return from_entries(document[ENTRY], ENTRY)
    except (OSError, ValueError, TypeError, LookupError) as error:
        # Not the text of a JSON error, which shows what it has read.
        why = error if isinstance(error, OSError | OptionError) else type(error).__name__
        raise StoreError(f"{file}: cannot be read ({why}); restore it, or delete it to have new keys made") from None


def _write(file: Path, document: dict[str, Any]) -> None:
    new = file.with_name(file.name + ".new")
    try:
        new.unlink(missing_ok=True)  # of a broker that was killed while it wrote
        new.touch(mode=0o600, exist_ok=False)
        with new.open("w", encoding="utf-8") as opened:
            json.dump(document, opened, indent=2)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
        sync_directory(file.parent)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}; give the broker a directory it may write to") from error
