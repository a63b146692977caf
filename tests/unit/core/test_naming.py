"""Names of namespaces, entities and backlog queues: B1, B4, and the comparison of S1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.core.naming import (
    backlog_index,
    backlog_path,
    backlog_paths,
    entity_key,
    extra_backlog_paths,
    namespace_label,
    same_namespace,
)
from pairbus.errors import OptionError

PRIMARY = "contoso.servicebus.windows.net"

labels = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,20}", fullmatch=True)


@pytest.mark.parametrize(
    "host",
    [
        "contoso",
        "contoso.servicebus.windows.net",
        "CONTOSO.ServiceBus.Windows.Net",
        "contoso.servicebus.windows.net:5671",
        "contoso:5671",
        "sb://contoso.servicebus.windows.net/",
        "https://contoso.servicebus.windows.net:443/",
        " contoso.servicebus.windows.net ",
    ],
)
def test_b1_the_label_is_the_first_one_of_the_host_name(host: str) -> None:
    assert namespace_label(host) == "contoso"


@pytest.mark.parametrize("host", ["", " ", "/", "sb://", "sb:///", ".servicebus.windows.net", ":5671"])
def test_a_host_without_a_first_label_is_refused(host: str) -> None:
    with pytest.raises(OptionError) as caught:
        namespace_label(host)
    assert (caught.value.option, caught.value.value) == ("namespace", host)
    assert "'contoso.servicebus.windows.net'" in caught.value.valid


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (PRIMARY, PRIMARY, True),
        (PRIMARY, "Contoso.ServiceBus.Windows.Net", True),
        (PRIMARY, f"sb://{PRIMARY}/", True),
        (f"https://{PRIMARY}/", f" sb://{PRIMARY}", True),
        ("localhost:5671", "sb://LOCALHOST:5671/", True),
        ("localhost:5671", "localhost:5672", False),
        (PRIMARY, "fabrikam.servicebus.windows.net", False),
        (PRIMARY, "contoso.servicebus.chinacloudapi.cn", False),
    ],
)
def test_p2_a_namespace_is_its_host_and_port(one: str, other: str, same: bool) -> None:  # noqa: FBT001
    assert same_namespace(one, other) is same
    assert same_namespace(other, one) is same


@pytest.mark.parametrize("path", ["orders", "Orders", "ORDERS", "/orders", "orders/", "/Orders/"])
def test_s1_names_are_compared_case_insensitively(path: str) -> None:
    assert entity_key(path) == "orders"


def test_s1_the_parts_of_a_path_are_kept_apart() -> None:
    assert entity_key("/Sales/Orders/") == "sales/orders"


def test_b1_the_first_backlog_queue_of_contoso() -> None:
    assert backlog_path(PRIMARY, 0) == "contoso/x-servicebus-transfer/0"


def test_b1_paths_are_numbered_from_zero_to_count_exclusive() -> None:
    assert backlog_paths("sb://Contoso.servicebus.windows.net:5671/", 3) == (
        "contoso/x-servicebus-transfer/0",
        "contoso/x-servicebus-transfer/1",
        "contoso/x-servicebus-transfer/2",
    )


@given(labels, st.integers(0, 10_000))
def test_b1_a_path_tells_its_index_in_any_case(label: str, index: int) -> None:
    path = backlog_path(label, index)
    assert backlog_index(path, label) == index
    assert backlog_index(f"/{path.upper()}/", label.swapcase()) == index


@pytest.mark.parametrize(
    "path",
    [
        "orders",
        "contoso/x-servicebus-transfer",
        "contoso/x-servicebus-transfer/",
        "contoso/x-servicebus-transfer/07",
        "contoso/x-servicebus-transfer/-1",
        "contoso/x-servicebus-transfer/+1",
        "contoso/x-servicebus-transfer/1.0",
        "contoso/x-servicebus-transfer/one",
        "contoso/x-servicebus-transfer/1/2",
        "contoso/x-servicebus-transfer/1\n",
        "contoso/x-servicebus-transfer/\N{ARABIC-INDIC DIGIT ONE}",
        "fabrikam/x-servicebus-transfer/1",
        "a-contoso/x-servicebus-transfer/1",
        "old/contoso/x-servicebus-transfer/1",
    ],
)
def test_b1_other_paths_are_no_backlog_queues_of_the_primary(path: str) -> None:
    assert backlog_index(path, PRIMARY) is None


def test_b1_a_label_is_no_pattern() -> None:
    with pytest.raises(OptionError):
        backlog_index("aab/x-servicebus-transfer/1", "a+b")


def test_b4_extra_queues_are_those_numbered_from_count_on_in_order() -> None:
    existing = [
        "contoso/x-servicebus-transfer/10",
        "contoso/x-servicebus-transfer/4",
        "Contoso/X-ServiceBus-Transfer/7",
        "contoso/x-servicebus-transfer/5",
        "fabrikam/x-servicebus-transfer/9",
        "orders",
    ]
    assert extra_backlog_paths(existing, PRIMARY, 5) == (
        "contoso/x-servicebus-transfer/5",
        "Contoso/X-ServiceBus-Transfer/7",
        "contoso/x-servicebus-transfer/10",
    )


@given(st.integers(1, 20), st.integers(1, 20))
def test_b4_nothing_asked_for_is_extra(count: int, existing: int) -> None:
    extra = extra_backlog_paths(backlog_paths(PRIMARY, existing), PRIMARY, count)
    assert len(extra) == max(0, existing - count)
    assert not set(extra) & set(backlog_paths(PRIMARY, count))


@pytest.mark.parametrize(
    ("host", "label"),
    [
        ("127.0.0.1", "127-0-0-1"),
        ("127.0.0.1:5672", "127-0-0-1-5672"),
        ("sb://localhost:5672/", "localhost-5672"),
        ("localhost", "localhost"),
        ("sb://[::1]:5672/", "1-5672"),
        ("fe80::1:2", "fe80-1-2"),
        ("[fe80::1]", "fe80-1"),
    ],
)
def test_b1_an_address_stands_for_itself(host: str, label: str) -> None:
    assert namespace_label(host) == label


@pytest.mark.parametrize(
    "other",
    ["contoso.servicebus.windows.net:5671", "contoso.servicebus.windows.net.", "sb://CONTOSO.servicebus.windows.net/"],
)
def test_p2_spellings_of_one_namespace(other: str) -> None:
    assert same_namespace("contoso.servicebus.windows.net", other)


@pytest.mark.parametrize(
    ("one", "other"), [("localhost:5672", "localhost:5673"), ("[::1]:1", "[::1]:2"), ("fe80::1:2", "fe80::1:3")]
)
def test_p2_two_ports_or_addresses_are_two_namespaces(one: str, other: str) -> None:
    assert not same_namespace(one, other)
