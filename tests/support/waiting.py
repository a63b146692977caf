"""Waiting for what another process does, which tells nobody: looking again is the only way."""

import time
from collections.abc import Callable

EVERY = 0.05
"""Seconds between two looks."""


def wait_until(is_so: Callable[[], bool], seconds: float, why: Callable[[], object] = lambda: "waited in vain") -> None:
    """Look until something is so.

    :param why: tells what there is instead when the time is over.
    """
    ends = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends, why()
        time.sleep(EVERY)  # what other processes do cannot be awaited here
