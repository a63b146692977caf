"""Which tokens are good, what they grant, and that nothing that is put into one raises."""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from urllib.parse import quote, quote_plus, unquote

import pytest
from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.access.access import AccessControl, Grant
from pairbus.broker.access.policies import Policies, Policy, Right
from pairbus.broker.access.resources import Hosts, covers, path_of, resource
from pairbus.broker.access.tokens import Reason, Refused, parse, sign
from pairbus.broker.listen.web import Request

NOW = 1_700_000_000_000
LATER = NOW // 1000 + 600
SEND, LISTEN, MANAGE = Right.SEND, Right.LISTEN, Right.MANAGE

ROOT = Policy("root", (MANAGE,), "root-1", "root-2")
SENDER = Policy("app", (SEND,), "orders-1", "orders-2")
SHADOW = Policy("app", (LISTEN,), "namespace-1", "namespace-2")


class Book:
    """Policies as a namespace keeps them."""

    def __init__(self, **policies: Policies) -> None:
        self.policies = {path.replace("__", "/"): found for path, found in policies.items()}
        self.root: Policies = (ROOT, SHADOW)

    def policies_of(self, path: str) -> Policies:
        return self.root if not path else self.policies.get(path, ())

    def entity_policies(self) -> Iterable[tuple[str, Policy]]:
        return ((path, policy) for path, found in self.policies.items() for policy in found)


BOOK = Book(orders=(SENDER,))
ACCESS = AccessControl(BOOK, Hosts("contoso"))


def admit(token: str, audience: str = "sb://localhost/orders") -> Grant | Refused:
    return ACCESS.admit(token, audience, NOW)


def reason(judged: Grant | Refused | None) -> Reason | None:
    return judged.reason if isinstance(judged, Refused) else None


# --- tokens that are good -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        "sb://localhost",
        "sb://localhost/",
        "sb://127.0.0.1:5672/orders",
        "amqps://contoso.servicebus.windows.net/orders/",
        "https://Contoso/ORDERS",
        "http://contoso:443//orders//",
        "contoso.servicebus.windows.net/orders",
        "sb://[::1]:5672/orders",
        "sb://localhost/%6Frders",
    ],
)
def test_a_token_covers_its_resource_and_all_under_it(uri: str) -> None:
    for key in ROOT.keys:
        token = sign(uri, "root", key, LATER)
        for audience in ("sb://localhost/orders", "amqp://127.0.0.1:1/Orders/$DeadLetterQueue", "sb://contoso/orders/"):
            granted = admit(token, audience)
            assert isinstance(granted, Grant), granted
            assert granted.expires == LATER * 1000
            assert granted.allows("orders/$DeadLetterQueue", MANAGE)
            assert not granted.allows("bills", SEND)


def test_a_grant_reaches_as_far_as_its_audience_and_no_further() -> None:
    token = sign("sb://localhost/", "root", "root-1", LATER)
    whole, one = admit(token, "sb://localhost/"), admit(token)
    assert isinstance(whole, Grant)
    assert isinstance(one, Grant)
    assert whole.allows("bills", SEND)
    assert one.allows("ORDERS/$management", SEND)
    assert not one.allows("bills", SEND)
    assert not one.allows("orders2", SEND)


def test_the_sdk_signs_as_we_read() -> None:
    access = AccessControl(Book(**{"my queue": (Policy("a+b %c", (SEND,), "key"),)}), Hosts("contoso"))
    uri = "sb://127.0.0.1:5672/my queue"
    token = ServiceBusSharedKeyCredential("a+b %c", "key").get_token(uri).token
    granted = access.admit(token, uri, NOW)
    assert isinstance(granted, Grant)
    assert granted.allows("My Queue", SEND)


def test_encodings_in_lower_case_and_a_signature_with_plus_signs_are_read() -> None:
    encoded = quote("sb://localhost/orders", safe="").lower()
    for expiry in range(LATER, LATER + 50):
        digest = hmac.new(b"root-1", f"{encoded}\n{expiry}".encode(), hashlib.sha256).digest()
        signature = base64.b64encode(digest).decode()
        for written in (signature, quote_plus(signature)):
            token = f"sharedaccesssignature skn=root&se={expiry}&sr={encoded}&sig={written}"
            assert isinstance(admit(token), Grant)


# --- whose key it is ----------------------------------------------------------------------------------------------


def test_policies_of_the_entity_and_of_those_above_it_count() -> None:
    """A name may be that of several policies: the key decides which one it is."""
    for key, right in (("orders-1", SEND), ("orders-2", SEND), ("namespace-1", LISTEN), ("namespace-2", LISTEN)):
        uri = "sb://localhost/orders/Subscriptions/all"
        granted = admit(sign(uri, "app", key, LATER), uri)
        assert isinstance(granted, Grant)
        assert granted.rights == (right,)


def test_a_policy_of_an_entity_is_none_of_the_namespace_or_of_another() -> None:
    assert reason(admit(sign("sb://localhost/", "app", "orders-1", LATER))) is Reason.SIGNATURE
    token = sign("sb://localhost/bills", "app", "orders-1", LATER)
    assert reason(admit(token, "sb://localhost/bills")) is Reason.SIGNATURE


# --- tokens that are not ------------------------------------------------------------------------------------------


def test_a_signature_is_compared_whole() -> None:
    good = sign("sb://localhost/orders", "root", "root-1", LATER)
    written = good.partition("sig=")[2].partition("&")[0]
    digest = base64.b64decode(unquote(written))
    assert isinstance(admit(good.replace(written, quote_plus(base64.b64encode(digest)))), Grant)
    others = [digest[:length] for length in (1, 8, 16, 31)]
    others += [digest + b"\0", digest * 2, b"\0" + digest, bytes(32), digest[::-1]]
    others += [digest[:at] + bytes([digest[at] ^ 1]) + digest[at + 1 :] for at in range(len(digest))]
    for other in others:
        token = good.replace(written, quote_plus(base64.b64encode(other)))
        assert reason(admit(token)) is Reason.SIGNATURE, other


@pytest.mark.parametrize("later", [1, 9, 10, 1000, 10**6, 10**9])
def test_a_signature_covers_the_expiry(later: int) -> None:
    for key in ROOT.keys:
        good = sign("sb://localhost/orders", "root", key, LATER)
        assert isinstance(admit(good), Grant)
        for seconds in (str(LATER + later), f"0{LATER}", f"{LATER}0"):
            assert reason(admit(good.replace(f"se={LATER}", f"se={seconds}"))) is Reason.SIGNATURE
        dead = sign("sb://localhost/orders", "root", key, NOW // 1000 - later)
        assert reason(admit(dead)) is Reason.EXPIRED
        assert reason(admit(dead.replace(f"se={NOW // 1000 - later}", f"se={LATER}"))) is Reason.SIGNATURE


def test_each_refusal_has_its_reason_and_no_secret() -> None:
    good = sign("sb://localhost/orders", "root", "root-1", LATER)
    signature = good.partition("sig=")[2].partition("&")[0]
    cases = {
        sign("sb://localhost/orders", "root", "root-1", NOW // 1000): Reason.EXPIRED,
        sign("sb://localhost/orders", "root", "root-3", LATER): Reason.SIGNATURE,
        sign("sb://localhost/orders", "nobody", "root-1", LATER): Reason.UNKNOWN_POLICY,
        sign("sb://localhost/bills", "root", "root-1", LATER): Reason.AUDIENCE,
        sign("sb://localhost/orders/more", "root", "root-1", LATER): Reason.AUDIENCE,
        sign("sb://fabrikam/orders", "root", "root-1", LATER): Reason.AUDIENCE,
        good.replace(f"se={LATER}", f"se={LATER + 1}"): Reason.SIGNATURE,
        good.replace("orders", "%6Frders"): Reason.SIGNATURE,
        good.replace("skn=root", "skn=app"): Reason.SIGNATURE,
        good.replace("se=", "ex="): Reason.MALFORMED,
        good + "&sr=x": Reason.MALFORMED,
        good.replace(f"se={LATER}", "se=soon"): Reason.MALFORMED,
        good.replace(f"se={LATER}", "se=١٢٣"): Reason.MALFORMED,
        good.replace(f"se={LATER}", "se=-1"): Reason.MALFORMED,
        good.replace(signature, "***"): Reason.MALFORMED,
        good.replace("SharedAccessSignature ", ""): Reason.MALFORMED,
        "Bearer x": Reason.MALFORMED,
        "": Reason.MALFORMED,
        good + "x" * 9000: Reason.MALFORMED,
    }
    assert isinstance(admit(good), Grant)
    for token, expected in cases.items():
        refused = admit(token)
        assert isinstance(refused, Refused)
        assert refused.reason is expected, token
        assert not any(secret in refused.text for secret in (*ROOT.keys, *SENDER.keys, signature))
    assert reason(admit(good, "sb://fabrikam/orders")) is Reason.AUDIENCE


def test_nobody_can_ask_for_the_names_of_policies() -> None:
    unknown = admit(sign("sb://localhost/", "nobody", "x", LATER))
    wrong = admit(sign("sb://localhost/", "root", "x", LATER))
    assert isinstance(unknown, Refused)
    assert isinstance(wrong, Refused)
    assert unknown.text == wrong.text


def test_a_rotated_key_is_good_no_more() -> None:
    book = Book()
    access = AccessControl(book, Hosts("contoso"))
    token = sign("sb://localhost/", "root", "root-1", LATER)
    assert reason(access.admit(token, "sb://localhost/", NOW)) is None
    book.root = (Policy("root", (MANAGE,), "root-3", "root-2"),)
    assert reason(access.admit(token, "sb://localhost/", NOW)) is Reason.SIGNATURE
    book.root = ()
    assert reason(access.admit(token, "sb://localhost/", NOW)) is Reason.UNKNOWN_POLICY


@pytest.mark.parametrize(
    ("address", "host", "fits"),
    [
        ("127.0.0.1", "contoso", True),
        ("127.0.0.1", "contoso.servicebus.windows.net", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "::1", True),
        ("127.0.0.1", "fabrikam", False),
        ("127.0.0.1", "contoso2", False),
        ("127.0.0.1", "", False),
        ("10.0.0.7", "10.0.0.7", True),
        ("10.0.0.7", "10.0.0.8", False),
        ("0.0.0.0", "broker", True),  # noqa: S104 (it cannot know by which of its names it is reached)
    ],
)
def test_the_names_of_a_namespace(address: str, host: str, *, fits: bool) -> None:
    assert Hosts("Contoso", address).fit(host) is fits


# --- logging in, and HTTP -----------------------------------------------------------------------------------------


def test_a_name_and_a_key_log_in_wherever_they_are_a_policy() -> None:
    assert [grant.scope for grant in ACCESS.log_in("root", "root-2")] == [()]
    (grant,) = ACCESS.log_in("app", "orders-1")
    assert grant == Grant("app", (SEND,), ("orders",), None)
    assert not grant.is_over(NOW * 1000)
    assert ACCESS.log_in("root", "root-3") == []
    assert ACCESS.log_in("root", "") == []
    assert ACCESS.log_in("nobody", "root-1") == []


def test_a_request_needs_a_token_with_the_right() -> None:
    def judge(token: str | None, path: str, right: Right) -> Reason | None:
        headers = {} if token is None else {"authorization": token}
        return reason(ACCESS.authorize(Request("GET", f"/{path}", headers=headers), path, right, NOW))

    root = sign("https://127.0.0.1:5672", "root", "root-1", LATER)
    sender = sign("https://localhost/orders", "app", "orders-1", LATER)
    assert judge(root, "orders", MANAGE) is None
    assert judge(root, "", MANAGE) is None
    assert judge(sender, "orders", SEND) is None
    assert judge(sender, "orders", MANAGE) is Reason.CLAIM
    assert judge(sender, "", MANAGE) is Reason.AUDIENCE
    assert judge(sender, "bills", SEND) is Reason.AUDIENCE
    assert judge(None, "orders", SEND) is Reason.MISSING
    assert judge("Bearer abc", "orders", SEND) is Reason.UNSUPPORTED
    assert judge("Basic abc", "orders", SEND) is Reason.MALFORMED
    other = Request("PUT", "/orders", headers={"servicebussupplementaryauthorization": root})
    assert ACCESS.authorize(other, "bills", MANAGE, NOW, header="servicebussupplementaryauthorization") is None


# --- whatever it is -----------------------------------------------------------------------------------------------

PIECES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["sr=", "&", "sig=", "se=", "skn=", "root", "%2f", "%", "+", "://", "=", " ", "\0", "1700000600"]),
)
UGLY = st.lists(PIECES, max_size=20).map("".join)


@given(UGLY, UGLY, st.sampled_from(["", "SharedAccessSignature "]))
def test_no_text_is_a_token_and_none_raises(text: str, audience: str, begin: str) -> None:
    assert isinstance(admit(begin + text, audience), Refused)
    assert isinstance(admit(begin + text), Refused)
    assert ACCESS.log_in(text, audience) == []
    assert isinstance(
        ACCESS.authorize(Request("GET", "/", headers={"authorization": begin + text}), audience, SEND, NOW), Refused
    )


@given(st.fixed_dictionaries(dict.fromkeys(("sr", "sig", "se", "skn"), UGLY)))
def test_no_fields_are_a_token_and_none_raise(fields: dict[str, str]) -> None:
    token = "SharedAccessSignature " + "&".join(f"{name}={value}" for name, value in fields.items())
    assert isinstance(admit(token), Refused)


@given(st.data())
def test_a_token_with_one_character_changed_is_refused(data: st.DataObject) -> None:
    token = sign("sb://localhost/orders", "root", "root-1", LATER)
    signature = range(token.index("sig=") + 4, token.index("&se="))
    at = data.draw(st.integers(len("SharedAccessSignature "), len(token) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda each: each.lower() != token[at].lower()))
    changed = token[:at] + other + token[at + 1 :]
    if at in signature and parse(changed) == parse(token):
        return  # the last letter of a base64 text has bits that mean nothing
    assert isinstance(admit(changed), Refused)


SEGMENT = st.text(st.characters(codec="ascii", exclude_characters="/?%"), min_size=1, max_size=5)


@given(st.lists(SEGMENT, max_size=4), st.lists(SEGMENT, max_size=4))
def test_one_path_covers_another_if_it_is_its_beginning(outer: list[str], inner: list[str]) -> None:
    expected = [part.lower() for part in inner[: len(outer)]] == [part.lower() for part in outer]
    if outer[-1:] != ["$management"] and inner[-1:] != ["$management"]:
        assert covers(path_of("/".join(outer)), path_of("/".join(inner))) is expected
    assert resource("sb://Host:1/" + quote("/".join(inner), safe="")) == resource("amqps://host/" + "/".join(inner))
