"""The administration as other clients than the SDK's may speak to it: wrong XML, wrong methods, preconditions."""

import base64
import hashlib
import hmac
import http.client
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import quote_plus

import pytest
from azure.servicebus import parse_connection_string

from pairbus.broker.admin.xml import ATOM, CONNECT, INSTANCE, MAX_BODY, parse
from pairbus.testing import EmbeddedBroker


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        found = parse(self.body).find("Detail")
        return "" if found is None else found.text


Ask: TypeAlias = Callable[..., Answer]


def token(connection_string: str) -> str:
    """Sign a token for the whole namespace, as any client can."""
    parsed = parse_connection_string(connection_string)
    resource, expires = quote_plus(f"http://{parsed.fully_qualified_namespace}/"), str(int(time.time()) + 600)
    digest = hmac.digest(str(parsed.shared_access_key).encode(), f"{resource}\n{expires}".encode(), hashlib.sha256)
    signature = quote_plus(base64.b64encode(digest))
    return f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={parsed.shared_access_key_name}"


@pytest.fixture
def ask(shared_broker: EmbeddedBroker) -> Ask:
    endpoint = next(iter(shared_broker.endpoints.values()))
    authorization = {"Authorization": token(endpoint.connection_string)}

    def ask(method: str, path: str, body: bytes | str = b"", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {**authorization, **named})
            response = connection.getresponse()
            return Answer(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    return ask


def entry(description: str, *, atom: str = ATOM, connect: str = CONNECT) -> str:
    described = description.replace("/>", f" xmlns={connect!r}/>", 1)
    return f'<entry xmlns="{atom}"><content type="application/xml">{described}</content></entry>'


QUEUE = entry("<QueueDescription/>")

REFUSED = {
    "no XML": ("queue", "'entry'"),
    "not an entry": (f'<feed xmlns="{ATOM}"/>', "The element 'feed' is not expected here, but 'entry'"),
    "an entry of another namespace": (entry("<QueueDescription/>", atom="urn:x"), "'entry'"),
    "no content": (f'<entry xmlns="{ATOM}"/>', "'content'"),
    "two descriptions": (entry("<QueueDescription/><QueueDescription/>"), "one description"),
    "a description of another namespace": (
        entry("<QueueDescription/>", connect="urn:x"),
        "'QueueDescription' is not of",
    ),
    "another description": (entry("<RuleDescription/>"), "'RuleDescription' is not expected here"),
    "an unknown element": (
        QUEUE.replace("/></content>", "><Surprise/></QueueDescription></content>"),
        "'Surprise' is not expected in 'QueueDescription'",
    ),
    "a bomb of entities": (
        f'<!DOCTYPE e [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>{QUEUE}',
        "Document type declarations and entities are not allowed",
    ),
    "a file": (
        f'<!DOCTYPE e [<!ENTITY x SYSTEM "file:///etc/passwd">]>{QUEUE.replace("application/xml", "&x;")}',
        "Document type declarations and entities are not allowed",
    ),
    "nesting": ("<a>" * 10_000, "nested"),
    "too much": (QUEUE + " " * MAX_BODY, "larger than"),
}


@pytest.mark.parametrize(("body", "why"), REFUSED.values(), ids=REFUSED)
def test_bodies_that_are_refused(ask: Ask, body: str, why: str) -> None:
    answer = ask("PUT", "/hostile?api-version=2021-05", body)
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/xml; charset=utf-8"
    if why != "'entry'" or "<" in body:
        assert why in answer.detail
    assert b"Publicly Listed" in ask("GET", "/hostile").body


def test_namespaces_may_have_any_prefix_and_elements_any_order(ask: Ask) -> None:
    body = (
        f'<a:entry xmlns:a="{ATOM}" xmlns:s="{CONNECT}" xmlns:i="{INSTANCE}"><a:title>any</a:title><a:content>'
        "<s:QueueDescription><s:MaxDeliveryCount>3</s:MaxDeliveryCount><s:LockDuration>PT30S</s:LockDuration>"
        '<s:ForwardTo i:nil="true"/></s:QueueDescription></a:content></a:entry>'
    )
    made = ask("PUT", "/prefixed?api-version=2021-05", body)
    assert made.status == 201
    assert b"<LockDuration>PT30S</LockDuration>" in made.body
    assert ask("DELETE", "/prefixed").status == 200


def test_preconditions(ask: Ask) -> None:
    made = ask("PUT", "/conditional", QUEUE)
    assert made.status == 201
    seen = made.headers["etag"]
    assert ask("PUT", "/conditional", QUEUE, If_Match="1").status == 412
    assert ask("PUT", "/conditional", QUEUE, If_Match=seen).status == 200
    assert ask("PUT", "/conditional", QUEUE, If_Match="*").status == 200
    assert ask("PUT", "/conditional", QUEUE).status == 409
    assert ask("DELETE", "/conditional").status == 200
    assert ask("PUT", "/conditional", QUEUE, If_Match="*").status == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/orders"),
        ("PATCH", "/orders"),
        ("PUT", "/$Resources/queues"),
        ("DELETE", "/$namespaceinfo"),
        ("PUT", "/orders/subscriptions"),
        ("DELETE", "/orders/subscriptions/all/rules"),
    ],
)
def test_methods_that_a_resource_does_not_have(ask: Ask, method: str, path: str) -> None:
    answer = ask(method, path, QUEUE)
    assert answer.status == 405
    assert method in answer.detail


def test_an_old_api_gets_what_it_knows(ask: Ask) -> None:
    assert b"MaxMessageSizeInKilobytes" in ask("GET", "/orders?api-version=2021-05").body
    assert b"MaxMessageSizeInKilobytes" in ask("GET", "/orders").body
    assert b"MaxMessageSizeInKilobytes" not in ask("GET", "/orders?api-version=2017-04").body


def test_names_are_found_whatever_their_case_and_their_slashes(ask: Ask) -> None:
    for path in ("/ORDERS", "/orders/", "//orders", "/%6Frders"):
        assert b'<title type="text">orders</title>' in ask("GET", path).body
    assert b'<title type="text">Queues</title>' in ask("GET", "/$resources/QUEUES").body
