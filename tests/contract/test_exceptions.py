"""Every exception of the SDK that the cloud can raise for queues is raised by a test of this suite."""

import inspect
import re
from pathlib import Path

from azure.servicebus import exceptions

LATER = {
    "MessagingEntityAlreadyExistsError": "only administration raises it",
    "ServiceBusServerBusyError": "faults on command: the broker does not throttle by itself",
}


def test_every_exception_is_raised_by_a_test_or_has_a_reason_not_to_be() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    raised = set(re.findall(r"pytest\.raises\((\w+)", text)) | set(re.findall(r"isinstance\([\w.]+, (\w+)\)", text))
    known = {
        name
        for name, kind in inspect.getmembers(exceptions, inspect.isclass)
        if kind.__module__ == exceptions.__name__ and issubclass(kind, Exception)
    }
    assert known - raised == set(LATER)
