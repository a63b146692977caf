"""The names of Service Bus's message annotations, which no other module of the client spells."""

from typing import Final

SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUED_TIME: Final = "x-opt-enqueued-time"
LOCKED_UNTIL: Final = "x-opt-locked-until"
MESSAGE_STATE: Final = "x-opt-message-state"
ENQUEUED_SEQUENCE_NUMBER: Final = "x-opt-enqueue-sequence-number"
"""The sequence number at the first entity of a message that was forwarded."""
SCHEDULED_ENQUEUE_TIME: Final = "x-opt-scheduled-enqueue-time"
PARTITION_KEY: Final = "x-opt-partition-key"
DEAD_LETTER_SOURCE: Final = "x-opt-deadletter-source"
LOCK_TOKEN: Final = "x-opt-lock-token"  # noqa: S105 (a name)
