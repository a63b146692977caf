"""Who may administer what: those with the Manage claim, as the cloud has it."""

from typing import Final

from pairbus.broker.access.access import AUTHORIZATION
from pairbus.broker.access.policies import Right
from pairbus.broker.access.tokens import Reason, Refused
from pairbus.broker.admin.addresses import (
    Address,
    EntityAddress,
    Listing,
    NamespaceAddress,
    RuleAddress,
    SubscriptionAddress,
    address_of,
)
from pairbus.broker.listen.web import Request
from pairbus.broker.namespace.namespace import Namespace

SUPPLEMENTARY: Final = {
    "ForwardTo": "servicebussupplementaryauthorization",
    "ForwardDeadLetteredMessagesTo": "servicebusdlqsupplementaryauthorization",
}
"""Which header has the token for the entity that messages are forwarded to."""


def refusal(namespace: Namespace, request: Request, address: Address) -> str | None:
    """Tell why a request may not be carried out; None: it may."""
    refused = _judge(namespace, request, _scope(address), Right.MANAGE)
    if refused is None or refused.reason is not Reason.CLAIM:
        return None if refused is None else refused.text
    return _lacking(request.method, address)


def may_administer(namespace: Namespace, request: Request) -> bool:
    """Tell by the head of a request whether it may be carried out, so that its body is worth reading."""
    return refusal(namespace, request, address_of(request.path)) is None


def forwarding_refusal(namespace: Namespace, request: Request, element: str, path: str) -> str | None:
    """Tell why messages may not be forwarded to an entity: who has them sent there must be allowed to send there."""
    header = SUPPLEMENTARY[element]
    given = header if header in request.headers else AUTHORIZATION
    refused = _judge(namespace, request, path, Right.SEND, given)
    return None if refused is None else f"{element}: {refused.text}"


def _judge(
    namespace: Namespace, request: Request, path: str, right: Right, header: str = AUTHORIZATION
) -> Refused | None:
    return namespace.access.authorize(request, path, right, namespace.access_clock(), header=header)


def _scope(address: Address) -> str:
    match address:
        case EntityAddress(path):
            return path
        case SubscriptionAddress(topic, name):
            return f"{topic}/subscriptions/{name}"
        case RuleAddress(topic, subscription) | Listing("Rules", topic, subscription):
            return f"{topic}/subscriptions/{subscription}"
        case Listing(_, topic):
            return topic
        case NamespaceAddress():
            return ""


def _lacking(method: str, address: Address) -> str:
    if isinstance(address, SubscriptionAddress | RuleAddress) or (isinstance(address, Listing) and address.topic):
        operation = address.kind if isinstance(address, Listing) else type(address).__name__.removesuffix("Address")
        verb = {"PUT": "CreateOrUpdate", "DELETE": "Delete"}.get(method, "Get")
        verb = "Enumerate" if isinstance(address, Listing) else verb
        return f"SubCode=40100: Unauthorized : Unauthorized access for '{verb}{operation}' operation"
    if method in ("PUT", "DELETE"):
        return f"Authorization failed for specified action: Manage,Entity{'Write' if method == 'PUT' else 'Delete'}"
    return "Manage,EntityRead claims required for this operation"
