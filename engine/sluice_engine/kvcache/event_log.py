"""What happens to the blocks of tagged prompts, recorded while a reader follows the cache.

A gateway tags a prompt, and is told in which blocks the prompt lies. The removal of any of these blocks is recorded, that of
others is not. Blocks have the pool's numbers: a number names the same content until its removal.
"""

from typing import NamedTuple


class PromptStored(NamedTuple):
    """A prompt of `tokens` tokens is computed; its leading full blocks, of `block_tokens` each, are in the index."""

    tag: str
    tokens: int
    block_tokens: int
    blocks: tuple[int, ...]


KvEvent = PromptStored | int  # an int: the number of a block that was removed from the index


class EventLog:
    """Events in order, until they are taken."""

    def __init__(self) -> None:
        self._events: list[KvEvent] = []
        self._named: set[int] = set()  # blocks that an event has named and that are still indexed

    def stored(self, event: PromptStored) -> None:
        """Record a prompt."""
        self._events.append(event)
        self._named.update(event.blocks)

    def removed(self, block: int) -> None:
        """Record that the block has left the index, if an event has named it."""
        if block in self._named:
            self._named.remove(block)
            self._events.append(block)

    def take(self) -> list[KvEvent]:
        """All events since the last call."""
        events, self._events = self._events, []
        return events
