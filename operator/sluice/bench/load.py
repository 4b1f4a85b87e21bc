"""The load on a server: prompts, arrival process, and SLO targets."""

import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass


class BenchError(Exception):
    """The load cannot be run as specified; the message has the fault, its reason and a remedy."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message, and its expected greedy output if that is known."""

    text: str
    expect: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load: open loop (`rate`) or closed loop (`concurrency`), until `requests` are sent or `duration` has passed.

    Raises BenchError if the fields contradict each other.
    """

    url: str  # http://host:port, with or without /v1
    prompts: tuple[Prompt, ...]
    model: str | None = None  # None: the first model that /v1/models lists
    rate: float | None = None  # open loop: mean arrivals per second, Poisson
    concurrency: int | None = None  # closed loop: requests in flight
    requests: int | None = None
    duration: float | None = None  # seconds in which requests are sent; requests in flight then still finish
    max_tokens: int = 128
    temperature: float = 0.0
    ignore_eos: bool = False  # always generate max_tokens, for loads of a known size
    seed: int = 0  # seed of the arrivals and of the order of prompts
    retries: int = 2  # as in the official client
    keep_alive: bool = True  # False: one connection per request, so that a Service balances the load over new pods too
    timeout: float = 600.0  # seconds per attempt, as in the official client
    max_in_flight: int = 4096  # open loop: further arrivals wait, and the wait counts as latency
    ttft_target: float | None = None  # seconds
    itl_target: float | None = None  # seconds, for a request's mean inter-token latency
    api_key: str | None = None

    def __post_init__(self) -> None:
        for wrong, sentence in (
            ((self.rate is None) == (self.concurrency is None), "give either a rate or a concurrency"),
            (self.requests is None and self.duration is None, "give a number of requests or a duration"),
            (not self.prompts, "there are no prompts"),
            (self.rate is not None and not 0 < self.rate < float("inf"), "the rate must be above 0"),
            (self.concurrency is not None and self.concurrency < 1, "the concurrency must be 1 or more"),
            (self.requests is not None and self.requests < 1, "the number of requests must be 1 or more"),
            (self.duration is not None and not 0 < self.duration < float("inf"), "the duration must be above 0"),
            (self.max_tokens < 1, "max_tokens must be 1 or more"),
            (self.retries < 0, "retries must be 0 or more"),
            (self.max_in_flight < 1, "max_in_flight must be 1 or more"),
            (not self.url.startswith(("http://", "https://")), f"{self.url!r} is no http:// or https:// address"),
        ):
            if wrong:
                raise BenchError(f"This load cannot be run: {sentence}.")

    @property
    def base_url(self) -> str:
        """The server's root: `url` without a trailing slash or /v1."""
        return self.url.rstrip("/").removesuffix("/v1").rstrip("/")

    def numbered(self) -> Iterator[int]:
        """The indices of the requests: 0 to `requests` - 1, or unbounded."""
        index = 0
        while self.requests is None or index < self.requests:
            yield index
            index += 1

    def prompt(self, index: int) -> Prompt:
        """The prompt of request `index`: successive shuffles of all prompts, determined by the seed."""
        lap, place = divmod(index, len(self.prompts))
        return self.prompts[_order(self.seed, lap, len(self.prompts))[place]]

    def arrivals(self) -> Iterator[float]:
        """Seconds from the start at which the requests of an open loop are due: a seeded Poisson process.

        Raises BenchError for a closed loop.
        """
        if self.rate is None:
            raise BenchError("Only an open loop has arrival times: give a rate.")
        rng = random.Random(self.seed)
        due = 0.0
        for _ in self.numbered():
            due += rng.expovariate(self.rate)
            if self.duration is not None and due >= self.duration:
                return
            yield due


@functools.lru_cache(maxsize=16)
def _order(seed: int, lap: int, count: int) -> tuple[int, ...]:
    return tuple(random.Random(f"{seed}/{lap}").sample(range(count), count))
