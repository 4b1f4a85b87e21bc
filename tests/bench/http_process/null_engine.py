"""An engine process without a model: it speaks the real protocol and answers every request at once.

`python -m tests.bench.http_process.null_engine SOCKET_PATH`. The first token of a request is sent as soon as the request
is read, and one more to every running request in each step of NULL_STEP_SECONDS. As in the real engine, NULL_PLACES
requests run, MAX_QUEUE more wait, and others are rejected.
"""

import os
import sys
import time
from typing import Final

from sluice.contract import STEP_MODEL_TERMS
from sluice_engine import messages
from sluice_engine.core.process import Channel
from sluice_engine.limits import Limits, at_start

ENV_STEP_SECONDS: Final = "NULL_STEP_SECONDS"
ENV_PLACES: Final = "NULL_PLACES"
CONTEXT: Final = 200_000
FIRST_TOKEN, TOKENS = 100, 100  # ids of words in the demo model's vocabulary
IDLE_SECONDS: Final = 1.0
MAX_QUEUE: Final = Limits().max_queue


class NullEngine:
    """Requests in flight, by the number of tokens that they still get."""

    def __init__(self, channel: Channel, step_seconds: float, places: int) -> None:
        self._channel, self._step_seconds, self._places = channel, step_seconds, places
        self._remaining: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        self._limits = at_start(Limits(concurrency_max=places))
        self._next_step = 0.0

    def run(self) -> None:
        """Serve until the parent ends."""
        while True:
            wait = max(0.0, self._next_step - time.monotonic()) if self._remaining else IDLE_SECONDS
            new: list[str] = []
            for message in self._channel.received(wait):
                self._take(message)
            while self._waiting and len(self._remaining) < self._places:
                name = next(iter(self._waiting))
                self._remaining[name] = self._waiting.pop(name)
                new.append(name)
            if new:
                self._step([name for name in new if name in self._remaining])
            if self._remaining and time.monotonic() >= self._next_step:
                self._step([name for name in self._remaining if name not in new] if new else list(self._remaining))
                self._next_step = time.monotonic() + self._step_seconds

    def _take(self, message: messages.ToEngine) -> None:
        if isinstance(message, messages.Submit):
            if len(self._waiting) + len(message.names) > self._places - len(self._remaining) + MAX_QUEUE:
                why = f"the queue holds {MAX_QUEUE} requests, its limit"
                self._channel.send(messages.Rejected(message.request_id, "queue_full", 1.0, why))
                return
            if not self._remaining:
                self._next_step = time.monotonic() + self._step_seconds
            self._waiting.update(dict.fromkeys(message.names, message.params.max_tokens or 1))
        elif isinstance(message, messages.Cancel):
            self._remaining.pop(message.request_id, None)
            self._waiting.pop(message.request_id, None)
        elif isinstance(message, messages.StateRequest):
            self._channel.send(messages.StateReply(message.token, {}))

    def _step(self, names: list[str]) -> None:
        """One token for each of these requests, in one report."""
        deltas = []
        for name in names:
            left = self._remaining[name] = self._remaining[name] - 1
            token = FIRST_TOKEN + left % TOKENS
            deltas.append(messages.Delta(name, (token,), None if left else "length"))
            if not left:
                del self._remaining[name]
        self._channel.send(
            messages.StepReport(
                deltas=tuple(deltas),
                ended_at=time.monotonic(),
                seconds=self._step_seconds,
                prefill_tokens=0,
                prefill_context=0.0,
                sequences=len(names),
                kv_tokens=0,
                generated_tokens=len(names),
                prompt_tokens=0,
                cached_prompt_tokens=0,
                preemptions=0,
                running=len(self._remaining),
                waiting=0,
                tokens_in_flight=0,
                blocks_held=0,
                blocks_cached=0,
                blocks_free=1,
                limits=self._limits,
                model=(0.0,) * len(STEP_MODEL_TERMS),  # type: ignore[arg-type]
                model_error=0.0,
                model_steps=0,
            )
        )


def main(path: str) -> None:
    """Connect, report readiness, serve."""
    channel = Channel(path)
    channel.send(
        messages.Ready(
            dtype="none", device="none", block_size=16, num_blocks=1, max_model_length=CONTEXT,
            vocab_size=FIRST_TOKEN + TOKENS, paced=False, load_seconds={},
        )
    )  # fmt: skip
    NullEngine(channel, float(os.environ[ENV_STEP_SECONDS]), int(os.environ[ENV_PLACES])).run()


if __name__ == "__main__":
    main(sys.argv[1])
