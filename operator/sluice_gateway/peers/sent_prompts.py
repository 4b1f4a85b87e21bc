"""Which prompts each gateway has sent where, so that all gateways know the same of the replicas' caches.

Each gateway keeps the prompts that it has sent of late, as hashes and numbered, and the others ask it for those after the last
one that they have read:

    GET /prompts?after=START:NUMBER    {"start", "last", "prompts": [[replica, tokens of a step, hashes in base64]]}

`start` is another one after a restart. No times are told, so clocks may differ. Without this two gateways would place one conversation by load, each elsewhere: of T3's
prompt tokens 23 % were found in caches behind two gateways, and 33 % are, as behind one (operator/LOG.md).
"""

import base64
import re
import struct
import uuid
from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, Final

from sluice_gateway.routing import Prompt

MOST_STEPS: Final = 65_536  # that a gateway keeps: some 2,600 prompts of 1,600 tokens
MOST_PROMPTS: Final = 512  # in a document
MOST_TOLD: Final = 16_384  # steps after which a document ends: learning them takes some 6 ms of the loop
MOST_BYTES: Final = 512 * 1024  # of a document: the steps of one prompt more, and the longest names of replicas
STEP_TOKENS: Final = (1.0, 4096.0)  # bounds of a step's tokens; of 256 bytes it has 5 to 512
_STEP_BYTES: Final = 8
_START: Final = re.compile(r"[0-9A-Za-z]{1,64}")  # it becomes a part of the next question


class BadPrompts(ValueError):
    """What another gateway has sent is no document of prompts."""


class SentPrompts:
    """The prompts that this gateway has sent of late. Its memory is bounded by `most` steps."""

    def __init__(self, most: int = MOST_STEPS) -> None:
        self._most = most
        self._start = uuid.uuid4().hex
        self._sent: deque[tuple[str, Prompt]] = deque()
        self._last = 0  # number of the newest one
        self._steps = 0

    def add(self, replica: str, prompt: Prompt) -> None:
        """The prompt is being sent to the replica."""
        self._sent.append((replica, prompt))
        self._last += 1
        self._steps += len(prompt.steps)
        while self._steps > self._most:
            self._steps -= len(self._sent.popleft()[1].steps)

    def document(self, after: str) -> dict[str, Any]:
        """The oldest of those after `after`, "START:NUMBER"; of all that are kept, if it is not of this start."""
        start, _, number = after.partition(":")
        seen = int(number[:18]) if start == self._start and number.isdecimal() else 0
        first = self._last - len(self._sent) + 1  # number of the oldest that is kept
        skipped = min(max(seen + 1 - first, 0), len(self._sent))
        chosen, steps = list[tuple[str, Prompt]](), 0
        for one in islice(self._sent, skipped, skipped + MOST_PROMPTS):
            chosen.append(one)
            steps += len(one[1].steps)
            if steps >= MOST_TOLD:
                break
        last = first + skipped + len(chosen) - 1
        return {"start": self._start, "last": last, "prompts": [_row(*one) for one in chosen]}


class ReadPrompts:
    """What was read last of each gateway, by its URL."""

    def __init__(self) -> None:
        self._read: dict[str, str] = {}

    def after(self, url: str) -> str:
        """What `SentPrompts.document` of the gateway is asked for next."""
        return self._read.get(url, "")

    def keep(self, urls: Collection[str]) -> None:
        """Forget all other gateways."""
        self._read = {url: read for url, read in self._read.items() if url in urls}

    def learn(self, url: str, document: Any) -> Sequence[tuple[str, Prompt]]:
        """The prompts of the gateway's document and their replicas. Raises BadPrompts; then nothing counts as read."""
        self._read[url], prompts = _parsed(document)
        return prompts


def _row(replica: str, prompt: Prompt) -> list[Any]:
    hashes = struct.pack(f"<{len(prompt.steps)}Q", *prompt.steps)
    return [replica, prompt.step_tokens, base64.b64encode(hashes).decode("ascii")]


def _parsed(document: Any) -> tuple[str, Sequence[tuple[str, Prompt]]]:
    try:
        start, last, rows = document["start"], document["last"], document["prompts"]
        prompts = [(replica, _prompt(step_tokens, hashes)) for replica, step_tokens, hashes in rows]
    except (TypeError, KeyError, ValueError) as error:
        raise BadPrompts("it is no list of prompts") from error
    if not isinstance(start, str) or _START.fullmatch(start) is None or type(last) is not int:
        raise BadPrompts("its start or its number is wrong")
    if not all(isinstance(name, str) for name, _ in prompts):
        raise BadPrompts("a replica has no name")
    return f"{start}:{last}", prompts


def _prompt(step_tokens: Any, hashes: Any) -> Prompt:
    """Raises TypeError, ValueError."""
    packed = base64.b64decode(hashes, validate=True)
    is_size = type(step_tokens) in (int, float) and STEP_TOKENS[0] <= step_tokens <= STEP_TOKENS[1]
    if not is_size or len(packed) % _STEP_BYTES:
        raise ValueError("no prompt")
    steps = struct.unpack(f"<{len(packed) // _STEP_BYTES}Q", packed)
    return Prompt(len(steps) * step_tokens, steps, step_tokens)
