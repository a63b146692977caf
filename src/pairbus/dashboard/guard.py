"""Who may see the page: an ASGI middleware before everything else.

A script that makes a request must come from the page itself, with a token or without: a browser names the page of the
script in ``Origin``, and sends the cookie along for every page of the same site, which for ``localhost`` are all its
ports. Otherwise any such page that the operator has open could discard messages (cross-site WebSockets). For the same
reason no answer allows another origin to read it; NiceGUI's own answers do.

Without a token the page is for this machine only: a request must be addressed to this machine by a name that only means
this machine (DNS rebinding). With a token, a client that has shown it once has a cookie.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairbus.errors import OptionError

SHORTEST_TOKEN: Final = 16
LONGEST_FORM: Final = 4096
TOKEN: Final = "token"  # noqa: S105 (the name of the parameter)

_POLICY: Final = (
    # Nothing is fetched from elsewhere: the browser makes sure of it. The scripts that put the page together compile.
    b"default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    b"frame-ancestors 'none'; base-uri 'self'; form-action 'self'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, the form below would be posted with "Origin: null"
    (b"x-content-type-options", b"nosniff"),
)
_CROSS_ORIGIN: Final = b"access-control-"
_POLICY_VIOLATION: Final = 1008
_FORM: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>pairbus</title>
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<style>body{{font:1rem/1.5 system-ui,sans-serif;max-width:24rem;margin:15vh auto;padding:0 1rem}}
input,button{{font:inherit;padding:.5rem;width:100%;box-sizing:border-box;margin-top:.5rem}}</style>
<main><h1>pairbus</h1><p role="alert">{problem}</p><form method="post" action="/token">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Open the dashboard</button></form>
<p>It was given to <code>pairbus dashboard</code> with --token.</p></main></html>"""


def is_loopback(host: str) -> bool:
    """Tell whether an address or a name means this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_token(host: str, token: str | None) -> None:
    """Refuse to listen where others could see the page without a token, or with one that can be guessed."""
    if token is None:
        if not is_loopback(host):
            raise OptionError(
                "host", host, "this machine only (127.0.0.1), or with a token: set PAIRBUS_DASHBOARD_TOKEN, or --token"
            )
    elif len(token) < SHORTEST_TOKEN:
        raise OptionError("token", "…", f"at least {SHORTEST_TOKEN} characters; make one with `openssl rand -hex 16`")


class Guard:
    """Lets those pass who may.

    :param secure: whether the page is served by TLS, so that the cookie is never sent without.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, port: int, secure: bool = False) -> None:
        self.app = app
        self._token = None if token is None else _digest(token)
        self._pass = "" if token is None else hmac.new(token.encode(), b"pairbus dashboard", "sha256").hexdigest()
        self._cookie = f"pairbus-{port}"  # cookies do not tell ports apart
        self._secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif not _is_of_this_page(scope):
            await _refuse(scope, receive, send, "This page answers to no other page's scripts.")
        elif self._token is None and not _is_to_this_machine(scope):
            await _refuse(scope, receive, send, "This page answers to localhost only.")
        elif self._token is None or self._has_cookie(scope):
            await self.app(scope, receive, _hardened(send))
        elif scope["type"] == "http":
            await self._ask(scope, receive, send)
        else:
            await _refuse(scope, receive, send, "This page needs a token.")

    def _has_cookie(self, scope: Scope) -> bool:
        try:
            cookies = SimpleCookie("; ".join(_header(scope, b"cookie")))
        except CookieError:
            return False
        shown = cookies.get(self._cookie)
        return shown is not None and hmac.compare_digest(shown.value.encode(), self._pass.encode())

    async def _ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the token from the address or from the form; else show the form."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == TOKEN), None)
        target = scope["path"]
        if given is None and scope["method"] == "POST" and scope["path"] == "/token":
            given, target, query = await _posted(receive), "/", []
        if given is None:
            await _answer(send, 401, _FORM.format(problem="This page needs a token."))
        elif not hmac.compare_digest(_digest(given), self._token or b""):
            await _answer(send, 401, _FORM.format(problem="That is not the token."))
        else:
            rest = urlencode([(name, value) for name, value in query if name != TOKEN])
            where = "/" + target.lstrip("/\\") + (f"?{rest}" if rest else "")
            cookie = f"{self._cookie}={self._pass}; HttpOnly; SameSite=Strict; Path=/" + "; Secure" * self._secure
            # The browser goes on by itself from a page of ours: a cookie that is strict is not sent along with a
            # redirection that began at another site, such as a chat with the link.
            page = f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(where)}"><title>pairbus</title>'
            await _answer(send, 200, page, [(b"set-cookie", cookie.encode())])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _header(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _is_to_this_machine(scope: Scope) -> bool:
    """Tell whether a request names this machine, by a name that cannot mean another one."""
    (host,) = _header(scope, b"host") or [""]
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)


def _is_of_this_page(scope: Scope) -> bool:
    """Tell whether no other page's script makes a request: what is no script, such as a link, names no origin."""
    hosts = _header(scope, b"host")
    return len(hosts) <= 1 and all([origin.partition("://")[2]] == hosts for origin in _header(scope, b"origin"))


async def _posted(receive: Receive) -> str | None:
    body = b""
    while len(body) <= LONGEST_FORM:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    return next(iter(parse_qs(body.decode("latin-1")).get(TOKEN, [])), None)


async def _refuse(scope: Scope, receive: Receive, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
    else:
        await _answer(send, 403, why)


async def _answer(send: Send, status: int, text: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    kind = b"text/html; charset=utf-8" if text.startswith("<") else b"text/plain; charset=utf-8"
    fields = [(b"content-type", kind), (b"cache-control", b"no-store"), *_HEADERS, *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": text.encode()})


def _hardened(send: Send) -> Send:
    async def hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [field for field in message.get("headers", ()) if not field[0].lower().startswith(_CROSS_ORIGIN)]
            message["headers"] = [*kept, *_HEADERS]
        await send(message)

    return hardened
