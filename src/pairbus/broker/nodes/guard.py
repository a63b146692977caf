"""What one client may do: by the tokens that it has put, or by the key with which it has logged in."""

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from pairbus.amqp import ReceiverLink, SenderLink
from pairbus.amqp.sasl import PLAIN, Credentials
from pairbus.broker.access.access import AccessControl, Grant, no_directory
from pairbus.broker.access.policies import Right
from pairbus.broker.access.resources import Path
from pairbus.broker.access.tokens import Reason, Refused, is_signature
from pairbus.broker.refusals import denied, token_expired

SAS: Final = "servicebus.windows.net:sastoken"
JWT: Final = "jwt"
PATIENCE: Final = 20_000
"""Milliseconds that a client has to show that it may be here."""
MAX_AUDIENCES: Final = 1000
"""For how many entities one client may put tokens."""

ServerLink: TypeAlias = SenderLink | ReceiverLink
_LOGGER = logging.getLogger(__name__)


class LinkGuard:
    """Guards one connection.

    :param clock: tells the time by which tokens expire, in milliseconds since the epoch.
    """

    def __init__(self, access: AccessControl, clock: Callable[[], int]) -> None:
        self._access = access
        self._clock = clock
        self._began = clock()
        self._logged_in: list[Grant] = []
        self._grants: dict[Path, Grant] = {}
        """By what they were put for: a new token takes the place of the old one."""
        self._links: dict[ServerLink, tuple[str, tuple[Right, ...]]] = {}
        """The links that are open, and of which rights each needs one, and where."""
        self.is_known = False
        """Whether the client has shown, once, that it may be here."""

    # --- who it is -----------------------------------------------------------------------------------------------

    def log_in(self, credentials: Credentials) -> bool:
        """Let a client go on: one that names a policy must know its key; the others say nothing yet."""
        if credentials.mechanism != PLAIN:
            return True
        self._logged_in = self._access.log_in(credentials.username, credentials.password)
        self.is_known = bool(self._logged_in)
        if not self.is_known:
            _LOGGER.info("a client that logs in is refused: the policy's name or its key is wrong")
        return self.is_known

    def put_token(self, kind: str, audience: str, token: str) -> Refused | None:
        """Take a token for an audience; None: it is good, and counts from now on."""
        judged = self._judge(kind.lower(), audience, token)
        if isinstance(judged, Refused):
            _LOGGER.info("a token is refused: %s", judged.reason)
            return judged
        self.is_known = True
        self._grants[judged.scope] = judged
        self._end_links()  # the new token may give less than the old one
        return None

    def _judge(self, kind: str, audience: str, token: str) -> Grant | Refused:
        # Python's SDK calls all its tokens JWT: what they are, they say themselves.
        if kind == JWT and not is_signature(token):
            return no_directory()
        if kind not in {SAS, JWT}:
            return Refused(Reason.UNSUPPORTED, f"{Reason.UNSUPPORTED}: The type of a token is '{SAS}'.")
        if len(self._grants) >= MAX_AUDIENCES:
            self._forget_grants()
            if len(self._grants) >= MAX_AUDIENCES:
                return Refused(Reason.UNSUPPORTED, f"{Reason.UNSUPPORTED}: {MAX_AUDIENCES} tokens at most.")
        return self._access.admit(token, audience, self._clock())

    # --- what it may do ------------------------------------------------------------------------------------------

    def check(self, path: str, *rights: Right) -> None:
        """Refuse a client that has none of these rights to an entity."""
        if not self._allows(path, rights):
            raise denied(path, rights)

    def watch(self, link: ServerLink, path: str, *rights: Right) -> None:
        """End a link when the client has none of these rights to an entity any more."""
        self._links[link] = (path, rights)

    def forget(self, link: ServerLink) -> None:
        """Watch a link no more."""
        self._links.pop(link, None)

    def _allows(self, path: str, rights: tuple[Right, ...]) -> bool:
        now = self._clock()
        grants = [*self._logged_in, *self._grants.values()]
        return any(grant.allows(path, right) for grant in grants if not grant.is_over(now) for right in rights)

    # --- as time goes by -----------------------------------------------------------------------------------------

    @property
    def is_overdue(self) -> bool:
        """Whether the client has had its time to show that it may be here."""
        return not self.is_known and self._clock() >= self._began + PATIENCE

    def tick(self) -> None:
        """End the links of tokens that have expired, as the cloud does."""
        if self._forget_grants():
            self._end_links()

    def expire(self) -> None:
        """Take all tokens as expired."""
        self._grants.clear()
        self._logged_in.clear()
        self._end_links()

    def _forget_grants(self) -> bool:
        now = self._clock()
        over = [scope for scope, grant in self._grants.items() if grant.is_over(now)]
        for scope in over:
            del self._grants[scope]
        return bool(over)

    def _end_links(self) -> None:
        for link, (path, rights) in list(self._links.items()):
            if not self._allows(path, rights):
                del self._links[link]
                link.detach(token_expired(link.name, path, rights).error)
