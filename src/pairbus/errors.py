"""Every error that pairbus raises, under one root.

.. code-block:: text

    PairbusError
    ├── OptionError (ValueError)        an option's value is refused
    ├── ConnectionStringError           a connection string is missing or cannot be read
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
    ├── TablesError                     the tables of ledgers cannot be brought up to date
    ├── PricesError (ValueError)        a price file cannot be used
    ├── MissingExtraError (ImportError) an extra of the package is not installed
    ├── SparkUnavailableError           Spark, or the Java under it, cannot be used
    └── ColumnError (ValueError)        a column of a DataFrame cannot be written or read

The facts of an error are attributes, so that a program need not read its text.
"""

import enum
from typing import Any


class PairbusError(Exception):
    """The root of all errors of pairbus. All of them can be pickled, as Spark and multiprocessing do."""

    maybe_sent: bool = False
    """Of an error that a send raised: whether an attempt was never answered, so that the messages may have arrived.

    Unknown is not failed (S7): send them again with the same message ids.
    """

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


class ConnectionStringError(PairbusError):
    """A connection string is missing or cannot be read. The text does not show it: it is a secret."""


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
    """Neither the primary nor any backlog queue took the messages; the caller still has them (S5)."""

    def __init__(
        self,
        entity: str,
        primary_cause: BaseException | None,
        backlog_cause: BaseException | None,
        *,
        maybe_sent: bool = False,
    ) -> None:
        self.entity = entity
        self.primary_cause = primary_cause
        self.backlog_cause = backlog_cause
        self.maybe_sent = maybe_sent
        super().__init__(
            f"{entity!r} is failing over and no backlog queue is left; {_doubt(maybe_sent=maybe_sent)} "
            f"({_causes(primary_cause, backlog_cause)})"
        )


class SendTimeoutError(PairbusError, TimeoutError):
    """The caller's time ran out before any broker accepted the messages.

    ``maybe_sent`` tells whether an attempt is in doubt: its answer never came, so the
    messages may have arrived. Unknown is not failed (S7): send again with the same message ids.

    :ivar primary_cause: what the primary last failed with, as far as is known.
    :ivar backlog_cause: what the backlog queues last failed with, as far as is known.
    """

    def __init__(
        self,
        entity: str,
        timeout: float,
        primary_cause: BaseException | None,
        backlog_cause: BaseException | None = None,
        *,
        maybe_sent: bool,
    ) -> None:
        self.entity = entity
        self.timeout = timeout
        self.primary_cause = primary_cause
        self.backlog_cause = backlog_cause
        self.maybe_sent = maybe_sent
        super().__init__(
            f"{entity!r} did not accept the message within {timeout:g} s; {_doubt(maybe_sent=maybe_sent)} "
            f"({_causes(primary_cause, backlog_cause)})"
        )


def _doubt(*, maybe_sent: bool) -> str:
    return "it may have arrived all the same" if maybe_sent else "it was not sent"


def _causes(primary: BaseException | None, backlog: BaseException | None) -> str:
    return f"primary: {_cause(primary)}; backlog: {_cause(backlog)}"


def _cause(cause: BaseException | None) -> str:
    return "no failure" if cause is None else repr(cause)


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


class TablesError(PairbusError):
    """The tables of ledgers cannot be brought up to date: another process does it; the text names the cure."""


class PricesError(PairbusError, ValueError):
    """A price file cannot be used; the text names the entry, its value and what is valid."""


class MissingExtraError(PairbusError, ImportError):
    """Something needs an extra of the package that is not installed; the text names both."""

    def __init__(self, what: str, module: str, extra: str) -> None:
        self.what = what
        self.module = module
        self.extra = extra
        super().__init__(f"{what} needs {module}, which is not installed: pip install 'pairbus[{extra}]'")


class SparkUnavailableError(PairbusError):
    """Spark, or the Java that it runs on, cannot be used; the text names what was found and the cure."""


class ColumnError(PairbusError, ValueError):
    """A column of a DataFrame, or its value in one row, cannot be written or read; the text names the cure.

    :ivar kind: the column's type; None: there is no such column.
    :ivar row: which row it is, as far as that can be told; None: it is the column as such.
    """

    def __init__(self, column: str, kind: str | None, cure: str, *, row: str | None = None) -> None:
        self.column = column
        self.kind = kind
        self.cure = cure
        self.row = row
        of_type = "" if kind is None else f" ({kind})"
        super().__init__(f"column {column!r}{of_type}{'' if row is None else f' of {row}'}: {cure}")
