"""Access to one namespace: which tokens are good, and what they grant."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from pairbus.broker.access.policies import Policies, Policy, Right
from pairbus.broker.access.resources import Hosts, Path, covers, path_of, resource
from pairbus.broker.access.tokens import KIND, Reason, Refused, Token, parse
from pairbus.broker.listen.web import Request

AUTHORIZATION: Final = "authorization"
SHOWN: Final = 300
"""Characters of a name that an answer repeats."""
_BEARER: Final = "bearer"


class PolicySource(Protocol):
    """Where the policies are, as they are now."""

    def policies_of(self, path: str) -> Policies:
        """Return the policies of an entity, or of the namespace (an empty path); none if there is no such entity.

        The path is in lower case.
        """
        ...

    def entity_policies(self) -> Iterable[tuple[str, Policy]]:
        """Return the policies of all entities, each with its entity's path."""
        ...


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody may do, and where.

    :ivar policy: the name of the policy that it comes from.
    :ivar scope: the entity, and all under it.
    :ivar expires: in milliseconds since the epoch; None: never.
    """

    policy: str
    rights: tuple[Right, ...]
    scope: Path
    expires: int | None

    def allows(self, path: str, right: Right) -> bool:
        """Tell whether it gives a right to an entity; whether it has expired is another question."""
        return right in self.rights and covers(self.scope, path_of(path))

    def is_over(self, now: int) -> bool:
        """Tell whether it has expired."""
        return self.expires is not None and self.expires <= now


class AccessControl:
    """Judges tokens. All that it says can be told to the client."""

    def __init__(self, book: PolicySource, hosts: Hosts) -> None:
        self._book = book
        self._hosts = hosts

    def serves(self, host: str) -> bool:
        """Tell whether a host, with a port or without, is this namespace."""
        return self._hosts.fit(resource(host).host)

    def admit(self, token: str, audience: str, now: int) -> Grant | Refused:
        """Judge a token that is put for an audience, a URI; it grants nothing outside of it. Never raises."""
        asked = resource(audience)
        if not self._hosts.fit(asked.host):
            return _wrong_audience(f"the namespace is not {_shown(asked.host)}")
        return self._admit(token, asked.path, now)

    def log_in(self, name: str, key: str) -> list[Grant]:
        """Return what the name of a policy and one of its keys, as such, grant; nothing if they are wrong."""
        here = [("", policy) for policy in self._book.policies_of("")]
        return [
            Grant(policy.name, policy.rights, path_of(path), None)
            for path, policy in (*here, *self._book.entity_policies())
            if policy.name == name and _is_key(policy, key)
        ]

    def authorize(
        self, request: Request, path: str, right: Right, now: int, *, header: str = AUTHORIZATION
    ) -> Refused | None:
        """Judge an HTTP request for an entity, or for the namespace (an empty path); None: it may go on.

        :param header: where the token is, in lower case. Never raises.
        """
        token = request.headers.get(header)
        if not token:
            return Refused(
                Reason.MISSING, f"{Reason.MISSING}: The request has no token: send the header '{header}: {KIND} …'."
            )
        if token.partition(" ")[0].lower() == _BEARER:
            return no_directory()
        judged = self._admit(token, path_of(path), now)
        if isinstance(judged, Refused):
            return judged
        return None if judged.allows(path, right) else lacks(path, right)

    def _admit(self, text: str, asked: Path, now: int) -> Grant | Refused:
        token = parse(text)
        if isinstance(token, Refused):
            return token
        target = resource(token.resource)
        if not self._hosts.fit(target.host):
            return _wrong_audience(f"the namespace is not {_shown(target.host)}")
        if not covers(target.path, asked):
            return _wrong_audience(f"the token is for {_shown_path(target.path)}, not for {_shown_path(asked)}")
        signed = self._signed_by(token, target.path)
        if isinstance(signed, Refused):
            return signed
        if token.expires <= now:
            return _expired(token.expires)
        return Grant(signed.name, signed.rights, asked, token.expires)

    def _signed_by(self, token: Token, path: Path) -> Policy | Refused:
        """Return the policy whose key has signed a token: the entity's own, one of those above it, the namespace's."""
        named = [
            policy
            for length in range(len(path), -1, -1)
            for policy in self._book.policies_of("/".join(path[:length]))
            if policy.name in token.names
        ]
        for policy in named:
            if any(token.is_signed_with(key) for key in policy.keys):
                return policy
        text = f"{Reason.SIGNATURE}: The token has an invalid signature: the policy's name or its key is wrong."
        return Refused(Reason.SIGNATURE if named else Reason.UNKNOWN_POLICY, text)


def lacks(path: str, right: Right) -> Refused:
    """Return the refusal of somebody who may not do this."""
    return Refused(
        Reason.CLAIM,
        f"{Reason.CLAIM}: Unauthorized access. '{right}' claim(s) are required to perform this operation. "
        f"Resource: {_shown('/' + path.strip('/'))}.",
    )


def no_directory() -> Refused:
    """Return the refusal of a token of a directory."""
    return Refused(
        Reason.UNSUPPORTED,
        f"{Reason.UNSUPPORTED}: This broker knows no Azure AD: use a connection string with a shared access key.",
    )


def _is_key(policy: Policy, key: str) -> bool:
    return any(hmac.compare_digest(own.encode(), key.encode(errors="replace")) for own in policy.keys)


def _shown(text: str) -> str:
    """Return what a client has said so that it can be put into any answer, XML included."""
    return f"'{text}'" if text.isprintable() and text.isascii() and len(text) <= SHOWN else "that"


def _shown_path(path: Path) -> str:
    return _shown("/" + "/".join(path))


def _wrong_audience(why: str) -> Refused:
    return Refused(Reason.AUDIENCE, f"{Reason.AUDIENCE}: The token has a wrong audience: {why}.")


def _expired(when: int) -> Refused:
    try:
        told = f"{datetime.fromtimestamp(when / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
    except (OverflowError, OSError, ValueError):
        told = str(when)
    return Refused(Reason.EXPIRED, f"{Reason.EXPIRED}: The token is expired. Expiration time: '{told}'.")
