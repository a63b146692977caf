"""The administration over HTTP: a request in, a response out."""

import re
import uuid
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from pairbus.amqp.conditions import INTERNAL_ERROR, NOT_FOUND, RESOURCE_LIMIT_EXCEEDED
from pairbus.broker.admin.addresses import (
    Address,
    EntityAddress,
    Listing,
    NamespaceAddress,
    RuleAddress,
    SubscriptionAddress,
    address_of,
)
from pairbus.broker.admin.collection import AdminContext, Collection
from pairbus.broker.admin.documents import (
    ENTRY_TYPE,
    ERROR_TYPE,
    FEED_TYPE,
    Entry,
    description,
    entry_document,
    error_document,
    feed_document,
    nothing_there,
    tag,
    text,
)
from pairbus.broker.admin.guard import forwarding_refusal, refusal
from pairbus.broker.admin.problems import (
    ProblemError,
    bad_parameter,
    bad_request,
    not_allowed,
    precondition_failed,
    unauthorized,
)
from pairbus.broker.admin.queues import QueueCollection
from pairbus.broker.admin.subscriptions import RuleCollection, SubscriptionCollection
from pairbus.broker.admin.topics import TopicCollection
from pairbus.broker.admin.values import time_text
from pairbus.broker.admin.xml import ATOM, CONNECT, Element, XmlError, parse
from pairbus.broker.listen.web import Request, Response
from pairbus.broker.namespace.namespace import Namespace
from pairbus.broker.refusals import RefusedError
from pairbus.errors import OptionError

NEWEST: Final = "2024-05"
PAGE: Final = 100
"""Entities of one page of a listing, at most."""

_STATUS: Final = {
    INTERNAL_ERROR: HTTPStatus.INTERNAL_SERVER_ERROR,
    NOT_FOUND: HTTPStatus.NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED: HTTPStatus.INSUFFICIENT_STORAGE,
}


class Administration:
    """Answers the administration's requests on a namespace. It is a :data:`~pairbus.broker.listen.web.Handler`.

    :param changed: is told when something was changed and is to become durable.
    :param opened_at: since when the namespace is served.
    """

    def __init__(self, namespace: Namespace, changed: Callable[[], None], opened_at: int) -> None:
        self._namespace = namespace
        self._changed = changed
        self._opened_at = opened_at

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        try:
            return await self._answer(request)
        except ProblemError as problem:
            return self._problem(request, problem.status, problem.detail)
        except (XmlError, OptionError) as error:
            problem = bad_request(f"{str(error)[:1].upper()}{str(error)[1:]}.")
            return self._problem(request, problem.status, problem.detail)
        except RefusedError as refused:
            status = _STATUS.get(refused.condition, HTTPStatus.BAD_REQUEST)
            return self._problem(request, status, refused.description)

    def _problem(self, request: Request, status: HTTPStatus, detail: str) -> Response:
        now = time_text(self._namespace.clock() // 1000 * 1000).removesuffix("Z")
        tracked = (
            f"{detail}. TrackingId:{uuid.uuid4()}_B0, SystemTracker:{self._namespace.name}:{request.path.strip('/')}, "
            f"Timestamp:{now}"
        )
        return Response(status, error_document(status, tracked), ERROR_TYPE)

    async def _answer(self, request: Request) -> Response:
        address = address_of(request.path)
        refused = refusal(self._namespace, request, address)
        if refused is not None:
            raise unauthorized(refused)
        context = AdminContext(
            self._namespace,
            request.headers.get("host", self._namespace.name),
            request.query.get("api-version", NEWEST),
            self._changed,
            partial(forwarding_refusal, self._namespace, request),
        )
        if isinstance(address, NamespaceAddress | Listing):
            if request.method != "GET":
                raise not_allowed(request.method)
            return (
                self._namespace_info(context)
                if isinstance(address, NamespaceAddress)
                else _list(context, address, request)
            )
        match request.method:
            case "GET":
                return _get(context, address, self._namespace.clock())
            case "PUT":
                return await _put(context, address, request)
            case "DELETE":
                return await _delete(context, address)
            case _:
                raise not_allowed(request.method)

    def _namespace_info(self, context: AdminContext) -> Response:
        rows = [node.row for node in self._namespace.entities] + [topic.row for topic in self._namespace.topics]
        oldest = min((row.created for row in rows if row.created), default=self._opened_at)
        name, created = self._namespace.name, time_text(min(oldest, self._opened_at))
        content = (
            tag("CreatedTime", created)
            + tag("MessagingSKU", "Standard")
            + tag("ModifiedTime", created)
            + tag("Name", text(name))
            + tag("NamespaceType", "Messaging")
        )
        entry = Entry(
            name,
            context.uri("$namespaceinfo"),
            description("NamespaceInfo", content),
            self._namespace.clock(),
            author=name,
        )
        return Response(HTTPStatus.OK, entry_document(entry), ENTRY_TYPE)


def _collections(context: AdminContext, address: Address) -> list[Collection[Any]]:
    match address:
        case SubscriptionAddress(topic) | Listing("Subscriptions", topic):
            return [SubscriptionCollection(context, topic)]
        case RuleAddress(topic, subscription) | Listing("Rules", topic, subscription):
            return [RuleCollection(context, topic, subscription)]
        case Listing("Queues"):
            return [QueueCollection(context)]
        case Listing():
            return [TopicCollection(context)]
        case _:
            return [QueueCollection(context), TopicCollection(context)]


def _name(address: EntityAddress | SubscriptionAddress | RuleAddress) -> str:
    return address.path if isinstance(address, EntityAddress) else address.name


def _get(context: AdminContext, address: EntityAddress | SubscriptionAddress | RuleAddress, now: int) -> Response:
    collections = _collections(context, address)
    for collection in collections:
        item = collection.find(_name(address))
        if item is not None:
            return _entry(collection, item, HTTPStatus.OK)
    if isinstance(address, EntityAddress):
        return Response(HTTPStatus.OK, nothing_there(now), FEED_TYPE)
    raise collections[0].missing(_name(address))


async def _delete(context: AdminContext, address: EntityAddress | SubscriptionAddress | RuleAddress) -> Response:
    collections = _collections(context, address)
    for collection in collections:
        item = collection.find(_name(address))
        if item is not None:
            await collection.delete(item)
            return Response(HTTPStatus.OK)
    raise collections[0].missing(_name(address))


async def _put(
    context: AdminContext, address: EntityAddress | SubscriptionAddress | RuleAddress, request: Request
) -> Response:
    described = _described(request.body)
    collections = _collections(context, address)
    fitting = [collection for collection in collections if collection.element == described.name]
    if not fitting:
        names = " or ".join(f"'{collection.element}'" for collection in collections)
        raise bad_request(f"The element '{described.name}' is not expected here, but {names}.")
    collection, name = fitting[0], _name(address)
    condition = request.headers.get("if-match")
    if condition is None:
        if any(each.find(name) is not None for each in collections):
            raise collection.exists(name)
        await collection.create(name, described)
    else:
        item = collection.find(name)
        if item is None:
            raise collection.missing(name, to_update=True)
        if condition.strip('"') not in ("*", _etag(collection.entry(item))):
            raise precondition_failed()
        await collection.update(item, described)
    made = collection.find(name)
    if made is None:
        raise collection.missing(name)
    return _entry(collection, made, HTTPStatus.CREATED if condition is None else HTTPStatus.OK)


def _described(body: bytes) -> Element:
    """Return the description in the entry that a client sends."""
    root = parse(body)
    if (root.namespace, root.name) != (ATOM, "entry"):
        raise bad_request(f"The element '{root.name}' is not expected here, but 'entry' of the namespace '{ATOM}'.")
    content = root.find("content")
    if content is None or len(content.children) != 1:
        raise bad_request("The element 'entry' needs one element 'content', with one description.")
    described = content.children[0]
    if described.namespace != CONNECT:
        raise bad_request(f"The element '{described.name}' is not of the namespace '{CONNECT}'.")
    return described


def _list(context: AdminContext, listing: Listing, request: Request) -> Response:
    skip, top = _parameter(request, "skip", 0), _parameter(request, "top", PAGE)
    (collection,) = _collections(context, listing)
    found = collection.all()
    page = found[skip : skip + min(top, PAGE)]
    path = request.path.strip("/")
    following = None
    if page and skip + len(page) < len(found):
        following = f"{context.uri(path)}&$skip={skip + len(page)}&$top={top}"
    uri = f"{context.uri(path)}&$skip={skip}&$top={top}"
    feed = feed_document(listing.kind, uri, context.namespace.clock(), map(collection.entry, page), following)
    return Response(HTTPStatus.OK, feed, FEED_TYPE)


def _parameter(request: Request, name: str, default: int) -> int:
    value = request.query.get(f"${name}", str(default))
    if not re.fullmatch(r"\d{1,9}", value, re.ASCII):
        raise bad_parameter(name)
    return int(value)


def _entry(collection: Collection[Any], item: Any, status: HTTPStatus) -> Response:  # noqa: ANN401 (what the collection has)
    entry = collection.entry(item)
    return Response(status, entry_document(entry), ENTRY_TYPE, {"ETag": _etag(entry)})


def _etag(entry: Entry) -> str:
    return str(entry.updated)
