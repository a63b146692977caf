"""What an application may import, which is not to change by accident."""

import subprocess
import sys
from importlib import import_module

import pytest

CLIENT = {
    "Availability",
    "BacklogQueue",
    "EntityAvailability",
    "MessageSender",
    "MessagingFactory",
    "NamespaceManager",
    "ParkedSchedule",
    "SendAvailabilityPairedNamespaceOptions",
    "Turn",
}
PUBLIC = {
    "pairbus": CLIENT,
    "pairbus.aio": CLIENT,
    "pairbus.aio.deadletters": {
        "Choice",
        "Letter",
        "Outcome",
        "Shelf",
        "browse_letters",
        "discard",
        "remove",
        "resubmit",
    },
    "pairbus.spark": {
        "DrainProgress",
        "LedgerReport",
        "MessageCounts",
        "DrainResult",
        "Tables",
        "arriving_lines",
        "drain",
        "follow",
        "make_report",
        "spark_session",
    },
    "pairbus.spark.session": {"spark_session"},
    "pairbus.spark.stream": {"arriving_lines", "follow"},
    "pairbus.spark.tables": {"Tables"},
    "pairbus.testing": {
        "CorrelationFilter",
        "EmbeddedBroker",
        "Endpoint",
        "EntityStatus",
        "FalseFilter",
        "Policy",
        "QueueSettings",
        "Right",
        "Rule",
        "SqlAction",
        "SqlFilter",
        "SubscriptionConfig",
        "SubscriptionSettings",
        "TopicConfig",
        "TopicSettings",
        "TrueFilter",
    },
}
"""Each module that users import from, with all that it offers."""


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_module_offers_what_it_names_and_nothing_else(name: str) -> None:
    module = import_module(name)
    assert set(module.__all__) == PUBLIC[name]
    assert all(getattr(module, each) is not None for each in module.__all__)


@pytest.mark.parametrize("name", ["pairbus", "pairbus.aio", "pairbus.spark"])
def test_what_is_not_there_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = import_module(name).nothing_of_the_kind


def test_importing_the_pipeline_does_not_start_importing_spark() -> None:
    program = "import sys, pairbus.spark; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
