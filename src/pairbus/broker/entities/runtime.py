"""What is known of an entity while it runs. Times are milliseconds since the epoch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Counts, size and times of a queue, a topic or a subscription, by the names that the SDK has for them.

    :ivar active_message_count: messages that wait, are under lock or deferred.
    :ivar transfer_message_count: messages that are to be forwarded and could not be yet.
    :ivar size_in_bytes: of all messages, the dead-lettered ones too.
    :ivar accessed_at: the last use; 0: never.
    """

    active_message_count: int = 0
    dead_letter_message_count: int = 0
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    subscription_count: int = 0
    size_in_bytes: int = 0
    created_at: int = 0
    updated_at: int = 0
    accessed_at: int = 0

    @property
    def total_message_count(self) -> int:
        """All messages."""
        return (
            self.active_message_count
            + self.dead_letter_message_count
            + self.scheduled_message_count
            + self.transfer_message_count
            + self.transfer_dead_letter_message_count
        )
