"""Every error that pairbus raises, under one root.

.. code-block:: text

    PairbusError
    ├── OptionError (ValueError)        an option's value is refused
    ├── PairingError                    two namespaces cannot be paired
    ├── MessageError (ValueError)       a message cannot be parked
    │   ├── ReservedPropertyError       it uses an application property that is ours (E3)
    │   └── ParkedMessageTooLargeError  it no longer fits once rewritten (S8)
    ├── BacklogUnavailableError         neither the primary nor any backlog queue took the message (S5)
    ├── SendTimeoutError (TimeoutError) the caller's time ran out (S6, S7)
    ├── CancelUnavailableError          a scheduled message cannot be cancelled while failover is engaged (S9)
    ├── FactoryEndedError               the factory takes no more operations (C1)
    │   ├── FactoryClosedError          it was closed
    │   ├── FactoryFaultedError         it has faulted; ``cause`` says why
    │   └── FactoryForkedError          it was made in another process
    ├── IllegalMoveError (RuntimeError) a state machine was told what cannot happen: a bug
    ├── DocumentError (ValueError)      a message's JSON cannot be read
    ├── LedgerError (ValueError)        a ledger record cannot be read
    └── PricesError (ValueError)        a price file cannot be used

The facts of an error are attributes, so that a program need not read its text.
"""

import enum
from typing import Any


class PairbusError(Exception):
    """The root of all errors of pairbus. All of them can be pickled, as Spark and multiprocessing do."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _revive, (type(self), self.args, self.__dict__)


def _revive(kind: type[PairbusError], args: tuple[Any, ...], facts: dict[str, Any]) -> PairbusError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class OptionError(PairbusError, ValueError):
    """An option's value is refused; the text names the option, the value and what is valid."""

    def __init__(self, option: str, value: object, valid: str) -> None:
        self.option = option
        self.value = value
        self.valid = valid
        super().__init__(f"{option}={value!r} is not valid: {valid}")


class PairingError(PairbusError):
    """Two namespaces cannot be paired; the factory stays unpaired and usable."""


class MessageError(PairbusError, ValueError):
    """A message cannot be parked; nothing of it was sent."""


class ReservedPropertyError(MessageError):
    """A message uses application properties in which a parked message carries its origin (E3)."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        super().__init__(
            f"application {'property' if len(names) == 1 else 'properties'} {', '.join(names)}: "
            "reserved for parked messages while the namespace is paired; rename in the application"
        )


class ParkedMessageTooLargeError(MessageError):
    """One message no longer fits once it is rewritten for a backlog queue (S8)."""

    def __init__(self, size: int, parked_size: int, limit: int) -> None:
        self.size = size
        self.parked_size = parked_size
        self.limit = limit
        super().__init__(
            f"a message of {size} bytes would be {parked_size} bytes once rewritten for a backlog queue, "
            f"which takes {limit} at most; send it in smaller parts"
        )


class BacklogUnavailableError(PairbusError):
    """Neither the primary nor any backlog queue took the message; the caller still has it (S5)."""

    def __init__(self, entity: str, primary_cause: BaseException | None, backlog_cause: BaseException | None) -> None:
        self.entity = entity
        self.primary_cause = primary_cause
        self.backlog_cause = backlog_cause
        why_backlog = (
            f"the last one failed with: {backlog_cause!r}"
            if backlog_cause is not None
            else "all of them failed a moment ago and are not tried again yet"
        )
        super().__init__(
            f"{entity!r} is failing over (primary: {primary_cause!r}) and no backlog queue is left "
            f"({why_backlog}); the message was not sent"
        )


class SendTimeoutError(PairbusError, TimeoutError):
    """The caller's time ran out before any broker accepted the message.

    ``maybe_sent`` tells whether an attempt is in doubt: its answer never came, so the
    message may have arrived. Unknown is not failed (S7): send again with the same message id.
    """

    def __init__(self, entity: str, timeout: float, cause: BaseException | None, *, maybe_sent: bool) -> None:
        self.entity = entity
        self.timeout = timeout
        self.cause = cause
        self.maybe_sent = maybe_sent
        doubt = "it may have arrived all the same" if maybe_sent else "it was not sent"
        super().__init__(f"{entity!r} did not accept the message within {timeout:g} s; {doubt} ({cause!r})")


class CancelUnavailableError(PairbusError):
    """Scheduled messages cannot be cancelled: only the primary knows their numbers, and it cannot be asked (S9)."""

    def __init__(self, entity: str) -> None:
        self.entity = entity
        super().__init__(f"{entity!r} is failing over: cancel its scheduled messages when it is back")


class FactoryEndedError(PairbusError):
    """The factory takes no more operations."""


class FactoryClosedError(FactoryEndedError):
    """The factory was closed."""

    def __init__(self) -> None:
        super().__init__("the factory is closed; make a new one")


class FactoryFaultedError(FactoryEndedError):
    """The factory has faulted (C1)."""

    def __init__(self, cause: BaseException | str) -> None:
        self.cause = cause
        why = cause if isinstance(cause, str) else repr(cause)
        super().__init__(f"the factory has faulted: {why}; make a new one")


class FactoryForkedError(FactoryEndedError):
    """The factory was carried across a fork, which its connections and its thread were not."""

    def __init__(self, made_in: int, used_in: int) -> None:
        self.made_in = made_in
        self.used_in = used_in
        super().__init__(
            f"the factory belongs to process {made_in}, and this is process {used_in}; make a new one after the fork"
        )


class IllegalMoveError(PairbusError, RuntimeError):
    """A state machine was told something that cannot happen in its state: a bug in its driver."""

    def __init__(self, state: enum.Enum, event: enum.Enum) -> None:
        self.state = state
        self.event = event
        super().__init__(f"{event.value!r} cannot happen while {state.value!r}")


class DocumentError(PairbusError, ValueError):
    """A message that is written as JSON cannot be read; the text names the field, its value and the cure."""

    def __init__(self, field: str, value: object, cure: str) -> None:
        self.field = field
        self.value = value
        self.cure = cure
        super().__init__(f"{field} is {value!r}: {cure}")


class LedgerError(PairbusError, ValueError):
    """A ledger record cannot be read; the text names the field."""


class PricesError(PairbusError, ValueError):
    """A price file cannot be used; the text names the entry, its value and what is valid."""
