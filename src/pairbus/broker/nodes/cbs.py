"""``$cbs``: clients put their tokens here."""

from collections.abc import Callable

from pairbus.broker.access.tokens import Refused
from pairbus.broker.nodes.requests import Answers, NodeRequest, status

PUT_TOKEN = "put-token"  # noqa: S105 (the name of an operation)


class TokenNode:
    """Answers ``put-token`` requests.

    :param accept: takes the token's type, its audience and the token; returns why it is refused, or None.
    """

    def __init__(self, answers: Answers, accept: Callable[[str, str, str], Refused | None]) -> None:
        self._answers = answers
        self._accept = accept

    def handle(self, request: NodeRequest) -> None:
        """Take a token."""
        asked = request.application_properties
        token = request.body
        if isinstance(token, bytes):
            token = token.decode(errors="replace")
        if asked.get("operation") != PUT_TOKEN or not isinstance(token, str):
            self._answer(request, 400, "put-token, with the token as the body, is all there is.")
            return
        refused = self._accept(str(asked.get("type", "")), str(asked.get("name", "")), token)
        if refused is None:
            self._answer(request, 202, "Accepted")
        else:
            self._answer(request, 401, refused.text)

    def _answer(self, request: NodeRequest, code: int, description: str) -> None:
        self._answers.send(request, {"status-code": status(code), "status-description": description}, None)
