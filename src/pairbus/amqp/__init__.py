"""AMQP 1.0, pure: bytes in, events and bytes out, for both roles.

Begin with :class:`Connection`. Values are in ``types``, what peers say in ``performatives``, what the caller is told
in ``events``, messages in ``message``, and two connections wired to each other for tests in ``loopback``.
"""

from pairbus.amqp.conditions import AmqpError
from pairbus.amqp.connection import Connection
from pairbus.amqp.handshake import ConnectionState, Side
from pairbus.amqp.link import LinkState
from pairbus.amqp.message import KEEP, Message, build_batch, build_message, split_batch
from pairbus.amqp.options import ConnectionOptions, Limits
from pairbus.amqp.receiver import ReceiverLink
from pairbus.amqp.sasl import Credentials, SaslClient, SaslServer
from pairbus.amqp.sender import SenderLink, SentDelivery
from pairbus.amqp.session import Session, SessionState

__all__ = [
    "KEEP",
    "AmqpError",
    "Connection",
    "ConnectionOptions",
    "ConnectionState",
    "Credentials",
    "Limits",
    "LinkState",
    "Message",
    "ReceiverLink",
    "SaslClient",
    "SaslServer",
    "SenderLink",
    "SentDelivery",
    "Session",
    "SessionState",
    "Side",
    "build_batch",
    "build_message",
    "split_batch",
]
