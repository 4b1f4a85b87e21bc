"""What a routing decision reads: the prompt, and each replica as it has published itself."""

from math import inf
from typing import NamedTuple

from sluice_perfmodel.step_time import StepTimeModel


class Prompt(NamedTuple):
    """A prompt without its text. `tokens` may be an estimate.

    `steps` are the chained hashes of the leading parts of `step_tokens` tokens each: two prompts that share the first k
    hashes share the first k parts. A prompt without steps shares no prefix. `session` is the client's own name for its
    conversation, "" without one. `draw`, 0 to 1, chooses the revision while the model has a canary.
    """

    tokens: float
    steps: tuple[int, ...] = ()
    step_tokens: float = 1.0
    session: str = ""
    draw: float = 1.0


class Replica(NamedTuple):  # a tuple for speed: the simulator makes one per replica and request
    """A replica's load. Lengths in tokens.

    `model` is the published step-time model, None before there is one. `other_zone`: it is known to be in another zone.
    `limit` is the number of requests that may run at once. `ttft_target` is the SLO target in seconds. `prefill_tokens`
    counts the prompt tokens still to be computed for requests that have been sent there, without the cached ones.
    `output_tokens` is the mean output of its finished requests.
    """

    name: str
    ready: bool = True
    model: StepTimeModel | None = None
    running: int = 0
    waiting: int = 0
    limit: int = 1
    prefill_tokens: float = 0.0
    output_tokens: float = 0.0
    kv_held: float = 0.0  # by running requests
    kv_total: float = 0.0
    ttft_target: float = inf
    other_zone: bool = False

    @property
    def requests(self) -> int:
        """Requests in flight."""
        return self.running + self.waiting
