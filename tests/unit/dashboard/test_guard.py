"""Who may see the page."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from pairbus.dashboard.guard import Guard, check_token, is_loopback
from pairbus.errors import OptionError

TOKEN = "0123456789abcdef"  # noqa: S105 (no secret)
EVERYWHERE = "0.0.0.0"  # noqa: S104 (nobody listens)
PAGE = b"the page"


async def page(scope: Scope, _: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": PAGE})
    else:
        await send({"type": f"{scope['type']}.accept"})


def ask(
    guard: Guard,
    path: str = "/",
    *,
    kind: str = "http",
    method: str = "GET",
    query: str = "",
    body: bytes = b"",
    headers: Iterable[tuple[str, str]] = (("host", "localhost:5680"),),
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:  # noqa: ANN401 (ASGI's)
        sent.append(dict(message))

    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }
    asyncio.run(guard(scope, receive, send))
    return sent


def status(sent: list[dict[str, Any]]) -> int:
    return sent[0]["status"]


def field(sent: list[dict[str, Any]], name: str) -> str:
    return next(value.decode() for key, value in sent[0]["headers"] if key == name.encode())


@pytest.mark.parametrize(
    ("host", "is_ours"), [("127.0.0.1", True), ("::1", True), ("LOCALHOST", True), (EVERYWHERE, False), ("shop", False)]
)
def test_what_is_this_machine_only(host: str, is_ours: bool) -> None:  # noqa: FBT001 (a parameter)
    assert is_loopback(host) is is_ours


def test_elsewhere_needs_a_token_that_cannot_be_guessed() -> None:
    check_token("127.0.0.1", None)
    check_token(EVERYWHERE, TOKEN)
    with pytest.raises(OptionError, match="PAIRBUS_DASHBOARD_TOKEN"):
        check_token(EVERYWHERE, None)
    with pytest.raises(OptionError, match="at least 16 characters") as refused:
        check_token(EVERYWHERE, "secret")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ([("host", "127.0.0.1:5680")], True),
        ([("host", "[::1]:5680"), ("origin", "http://[::1]:5680")], True),
        ([("host", "evil.example:5680")], False),  # a name that was made to mean this machine
        ([("host", "localhost:5680"), ("origin", "https://evil.example")], False),  # another page's script
        ([("host", "localhost:5680"), ("origin", "null")], False),
        ([], False),
    ],
)
def test_without_a_token_only_the_page_itself_on_this_machine(
    kind: str, headers: list[tuple[str, str]], *, passes: bool
) -> None:
    sent = ask(Guard(page, token=None, port=5680), kind=kind, headers=headers)
    if kind == "http":
        assert status(sent) == (200 if passes else 403)
        assert "default-src 'self'" in field(sent, "content-security-policy")
    else:
        assert sent[0]["type"] == ("websocket.accept" if passes else "websocket.close")


def test_with_a_token_nobody_passes_without_it() -> None:
    guard = Guard(page, token=TOKEN, port=5680)
    sent = ask(guard)
    assert status(sent) == 401
    assert b"This page needs a token" in sent[1]["body"]
    assert ask(guard, kind="websocket")[0]["type"] == "websocket.close"
    for wrong in ("", "0123456789abcdeX", "ü"):
        assert status(ask(guard, query=f"token={wrong}")) == 401
    for cookie in ("pairbus-5680=", "pairbus-5680=0123456789abcdef", "pairbus-5680", "=;=", "\x00"):
        assert status(ask(guard, headers=[("cookie", cookie)])) == 401


def shown_cookie(guard: Guard) -> str:
    return field(ask(guard, query=f"token={TOKEN}"), "set-cookie").partition(";")[0]


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ([("host", "shop:5680")], True),
        ([("host", "shop:5680"), ("origin", "https://shop:5680")], True),
        ([("host", "shop:5680"), ("origin", "https://evil.example")], False),
        ([("host", "shop:5680"), ("origin", "https://shop:5681")], False),  # the same site: it gets the cookie, too
        ([("host", "shop:5680"), ("origin", "null")], False),
        ([("host", "shop:5680"), ("origin", "")], False),
        ([("host", "shop:5680"), ("origin", "http://[")], False),
        ([("host", "shop:5680"), ("origin", "https://shop:5680"), ("origin", "https://evil.example")], False),
        ([("host", "shop:5680"), ("host", "evil.example"), ("origin", "https://evil.example")], False),
    ],
)
def test_with_a_token_no_other_page_uses_the_cookie(kind: str, headers: list[tuple[str, str]], *, passes: bool) -> None:
    guard = Guard(page, token=TOKEN, port=5680)
    sent = ask(guard, kind=kind, headers=[*headers, ("cookie", shown_cookie(guard))])
    if kind == "http":
        assert status(sent) == (200 if passes else 403)
    else:
        assert sent[0]["type"] == ("websocket.accept" if passes else "websocket.close")


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_no_other_page_can_try_tokens(origin: str) -> None:
    guard = Guard(page, token=TOKEN, port=5680)
    headers = [("host", "shop:5680"), ("origin", origin)]
    assert status(ask(guard, query=f"token={TOKEN}", headers=headers)) == 403
    assert status(ask(guard, "/token", method="POST", body=f"token={TOKEN}".encode(), headers=headers)) == 403


def test_a_form_is_posted_with_its_origin() -> None:
    """A browser posts a form of a page with the policy no-referrer with ``Origin: null``."""
    sent = ask(Guard(page, token=TOKEN, port=5680))
    assert field(sent, "referrer-policy") == "same-origin"


@pytest.mark.parametrize("token", [None, TOKEN])
def test_no_other_origin_is_allowed_to_read(token: str | None) -> None:
    async def generous(_: Scope, __: Receive, send: Send) -> None:
        allowed = [(b"Access-Control-Allow-Origin", b"*"), (b"access-control-allow-credentials", b"true")]
        await send({"type": "http.response.start", "status": 200, "headers": [*allowed, (b"etag", b"1")]})

    guard = Guard(generous, token=token, port=5680)
    cookie = [] if token is None else [("cookie", shown_cookie(guard))]
    sent = ask(guard, headers=[("host", "localhost:5680"), *cookie])
    names = {name.lower() for name, _ in sent[0]["headers"]}
    assert b"etag" in names
    assert not [name for name in names if name.startswith(b"access-control-")]


@pytest.mark.parametrize("way", ["address", "form"])
def test_whoever_has_shown_the_token_has_a_cookie_which_is_not_the_token(way: str) -> None:
    guard = Guard(page, token=TOKEN, port=5680, secure=True)
    if way == "address":
        sent = ask(guard, "//evil.example", query=f"a=1&token={TOKEN}")
        assert b"url=/evil.example?a=1" in sent[1]["body"], "it goes on at this site, without the token"
    else:
        sent = ask(guard, "/token", method="POST", body=f"token={TOKEN}".encode())
    cookie = field(sent, "set-cookie")
    assert TOKEN not in cookie
    assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/; Secure")
    shown = [("cookie", f"other=1; {cookie.partition(';')[0]}")]
    assert ask(guard, headers=shown)[1]["body"] == PAGE
    assert ask(guard, kind="websocket", headers=shown)[0]["type"] == "websocket.accept"
    assert status(ask(Guard(page, token=TOKEN[::-1], port=5680), headers=shown)) == 401


def test_a_form_that_does_not_end_is_not_read_to_its_end() -> None:
    guard = Guard(page, token=TOKEN, port=5680)
    assert status(ask(guard, "/token", method="POST", body=b"x" * 10_000)) == 401


def test_what_is_no_request_passes() -> None:
    assert ask(Guard(page, token=TOKEN, port=5680), kind="lifespan")[0]["type"] == "lifespan.accept"
