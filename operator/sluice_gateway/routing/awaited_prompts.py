"""Prompts that were sent to replicas whose events are followed, until an event names the blocks of each."""

from typing import Final

from sluice_gateway.routing.values import Prompt

MAX_STEPS: Final = 65_536  # of all prompts, some 3 MB; the oldest are given up beyond


class AwaitedPrompts:
    """Names prompts, and finds them by these names. Its memory is bounded by `most` steps."""

    def __init__(self, prefix: str, most: int = MAX_STEPS) -> None:
        """`prefix` begins each name: no other gateway has it, and no client knows it."""
        self._prefix = prefix
        self._most = most
        self._number = 0
        self._steps = 0
        self._prompts: dict[str, tuple[str, Prompt]] = {}  # oldest first

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self._prompts)

    def add(self, replica: str, prompt: Prompt) -> str:
        """The name of a prompt that is sent to this replica."""
        self._number += 1
        tag = f"{self._prefix}-{self._number:x}"
        self._prompts[tag] = (replica, prompt)
        self._steps += len(prompt.steps)
        while self._steps > self._most:
            self.drop(next(iter(self._prompts)))
        return tag

    def take(self, replica: str, tag: str) -> Prompt | None:
        """The prompt, which is awaited no longer; None unless it was sent to this replica."""
        found = self._prompts.get(tag)
        if found is None or found[0] != replica:
            return None
        self.drop(tag)
        return found[1]

    def drop(self, tag: str) -> None:
        """The prompt is awaited no longer. Idempotent."""
        found = self._prompts.pop(tag, None)
        if found is not None:
            self._steps -= len(found[1].steps)
