"""Every exception of the SDK that the cloud can raise for queues is raised by a test of this suite."""

import inspect
import re
from pathlib import Path

from azure.servicebus import exceptions

LATER = {
    "MessagingEntityAlreadyExistsError": "no data client makes entities, and administration raises ResourceExistsError",
}


def test_every_exception_is_raised_by_a_test_or_has_a_reason_not_to_be() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    ways = (r"pytest\.raises\((\w+)", r"isinstance\([\w.]+, (\w+)\)", r'^ +\("[\w-]+", (\w+Error)\),$')
    raised = {name for way in ways for name in re.findall(way, text, re.MULTILINE)}
    known = {
        name
        for name, kind in inspect.getmembers(exceptions, inspect.isclass)
        if kind.__module__ == exceptions.__name__ and issubclass(kind, Exception)
    }
    assert known - raised == set(LATER)
