"""Shared access policies."""

import base64

import pytest

from pairbus.broker.access.policies import MAX_POLICIES, Policy, Right, checked, find, new_key, rotated, without
from pairbus.errors import OptionError

SEND = (Right.SEND,)


def test_manage_is_all_rights() -> None:
    assert Policy("root", (Right.MANAGE,)).rights == (Right.SEND, Right.LISTEN, Right.MANAGE)
    assert Policy("both", (Right.LISTEN, Right.SEND)).rights == (Right.SEND, Right.LISTEN)


def test_keys_are_made_and_no_two_are_alike() -> None:
    keys = {key for _ in range(100) for key in Policy("a", SEND).keys} | {new_key()}
    assert len(keys) == 201
    assert all(len(base64.b64decode(key)) == 32 for key in keys)


def test_a_policy_shows_no_key() -> None:
    policy = Policy("a", SEND, "primary!", "secondary!")
    assert "primary!" not in repr(policy)
    assert "secondary!" not in repr(policy)
    with pytest.raises(OptionError) as caught:
        Policy("a", SEND, "bad;key")
    assert "bad;key" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "rights", "option"),
    [
        ("", SEND, "policy"),
        ("x" * 257, SEND, "policy"),
        ("a\n", SEND, "policy"),
        ("a", (), "rights"),
        ("a", ("Send", "Receive"), "rights"),
        ("a", "Send", "rights"),
    ],
)
def test_what_cannot_be_is_named(name: str, rights: tuple[Right, ...], option: str) -> None:
    with pytest.raises(OptionError, match=option):
        Policy(name, rights)


def test_twelve_policies_with_different_names() -> None:
    twelve = [Policy(str(number), SEND) for number in range(MAX_POLICIES)]
    assert checked(twelve) == tuple(twelve)
    with pytest.raises(OptionError, match="12 at most"):
        checked([*twelve, Policy("one more", SEND)])
    with pytest.raises(OptionError, match="one of this name already"):
        checked([Policy("a", SEND), Policy("a", SEND)])


def test_one_key_is_rotated_and_the_other_stays() -> None:
    policies = (Policy("a", SEND, "1", "2"), Policy("b", SEND, "3", "4"))
    assert [policy.keys for policy in rotated(policies, "b", "5", secondary=False)] == [("1", "2"), ("5", "4")]
    assert [policy.keys for policy in rotated(policies, "b", "5", secondary=True)] == [("1", "2"), ("3", "5")]
    assert without(policies, "a") == policies[1:]
    for change in (lambda: without(policies, "c"), lambda: rotated(policies, "c", "5", secondary=True)):
        with pytest.raises(OptionError, match="one that is there: a, b"):
            change()
    with pytest.raises(OptionError, match="one that is there: none"):
        find((), "c")
