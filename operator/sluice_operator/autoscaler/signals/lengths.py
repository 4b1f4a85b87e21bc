"""Request lengths: exponentially decaying sums over the last minutes that give the mean request."""

import math
from dataclasses import dataclass

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta
from sluice_perfmodel.workload import Work


@dataclass(frozen=True, slots=True)
class Lengths:
    """Decaying sums of requests and tokens; `at` is when they were last updated."""

    at: float = 0.0
    finished: float = 0.0
    started: float = 0.0
    generated: float = 0.0
    prompt: float = 0.0
    cached: float = 0.0


def add_lengths(old: Lengths, delta: FleetDelta, joined: float, now: float) -> Lengths:
    """Fold a delta into the decaying sums. `joined` is the increase of running requests.

    Requests that joined the batch have half of their tokens on average. They count half as finished, which keeps tokens
    per request right while the load grows or falls.
    """
    keep = math.exp(-max(0.0, now - old.at) / LAW.lengths_seconds)  # restored lengths (at: infinity) decay from now on
    grew, finished = delta.increase, delta.increase("finished_total")
    return Lengths(
        at=now,
        finished=old.finished * keep + finished + joined / 2.0,
        started=old.started * keep + finished + joined,
        generated=old.generated * keep + grew("generated_tokens_total"),
        prompt=old.prompt * keep + grew("prompt_tokens_total"),
        cached=old.cached * keep + grew("cached_prompt_tokens_total"),
    )


def mean_work(lengths: Lengths) -> Work | None:
    """The mean request of the last minutes; None while too few were seen.

    An embedding, score or rerank request counts as one output token, because it takes one step.
    """
    if min(lengths.finished, lengths.started) < LAW.least_requests:
        return None
    output, prompt = lengths.generated / lengths.finished, lengths.prompt / lengths.started
    cached = min(prompt, lengths.cached / lengths.started)
    return Work(output=max(output, 1.0), uncached=prompt - cached, cached=cached)
