"""Which pages' scripts the dashboard answers: its own, with a token and without. The whole command, over HTTP."""

import http.client
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.browser.pair import TOKEN, dashboard

SOCKET_IO = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
"""Where the page's script speaks with the server. NiceGUI's own answers there allow every origin to read them."""


def ask(url: str, path: str, **headers: str) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


@pytest.mark.parametrize("token", [None, TOKEN])
def test_only_the_page_itself_is_answered(tmp_path: Path, token: str | None) -> None:
    """The cookie is sent along by every page of the same site: ports do not tell sites apart."""
    with dashboard("--ledger", str(tmp_path), env={} if token is None else {"PAIRBUS_DASHBOARD_TOKEN": token}) as url:
        cookie = ask(url, f"/?token={TOKEN}")[1].get("set-cookie", "").partition(";")[0]
        own = url.rstrip("/")
        status, headers = ask(url, SOCKET_IO, Origin=own, Cookie=cookie)
        assert status == 200
        assert "access-control-allow-origin" not in headers
        status, headers = ask(url, SOCKET_IO, Cookie=cookie)
        assert status == 200
        assert "access-control-allow-origin" not in headers
        for stranger in ("http://localhost:1", "http://127.0.0.1:1", "https://evil.example", "null"):
            status, headers = ask(url, SOCKET_IO, Origin=stranger, Cookie=cookie)
            assert status == 403
            assert "access-control-allow-origin" not in headers
