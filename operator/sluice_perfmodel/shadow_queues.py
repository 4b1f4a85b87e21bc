"""Shadow queues: how many of an engine's requests would have been late had its load been x times as high.

Each engine feeds its own arrivals to a few fluid queues, one per load factor x of `LOADS`, and publishes how many
requests each of them makes late. A fleet of r replicas would have served its load as r' replicas do at x = r/r', so the
counters of the past answer "would fewer (or more) replicas have been enough?" without a model of the arrivals: bursts
and heavy tails are replayed as they came. (Ghost caches answer the same question for cache sizes.)

A shadow queue holds n running requests and v seconds of prompt work. With a decoding step of D(n) = base + sequence·n
seconds, prompts fill each step up to the inter-token target, so a step with prompt work takes S = D + P and prompts get
the share P/S of the time:

    dv/dt = −P/S while v > 0        dn/dt = −n/(o·S), or −n/(o·D) without prompt work    (o: mean output tokens)

A request with w seconds of prompt work is late if S + max((v + w)/(P/S), w/(P/S) + its wait for one of the n* places)
exceeds the TTFT target. Late requests are served last, so they do not join the queue. A request that is late even alone
is unreachable: no number of replicas serves it in time; it is counted apart, and its work uses the time that is left.
Any other is in time at an idle engine, n < 1 and v = 0.
"""

import math
from typing import Final, NamedTuple

from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel

LOADS: Final = (0.125, 0.25, 1 / 3, 0.5, 2 / 3, 0.8, 1.0, 1.25, 1.5, 2.0, 4.0)
LOAD_NAMES: Final = tuple(f"{load:.3g}" for load in LOADS)  # values of the metric's label
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0  # its multiples modulo 1 thin evenly (Weyl sequence)
_COPIES: Final = math.ceil(LOADS[-1]) - 1
_LEAST_SHARE: Final = PERFMODEL.shadow.least_share
_LEAST_CHUNK: Final = PERFMODEL.shadow.least_chunk
_LEAST_SECONDS: Final = 1e-9
# Per load: itself, copies of each earlier request, the chance of one copy more, and the weight of one late request.
_DRAWS: Final = tuple(
    (load, int(max(load - 1.0, 0.0)), max(load - 1.0, 0.0) % 1.0, 1.0 / max(load, 1.0)) for load in LOADS
)


class ShadowEngine(NamedTuple):
    """What a shadow queue assumes of its engine. Seconds, tokens."""

    base: float  # of a step
    sequence: float  # of a step, per running request at the mean context
    output: float  # mean output tokens of a request
    places: float  # n*: requests that may run at once
    itl: float  # target; inf where requests have one output token
    ttft: float  # target
    longest_prefill: float  # prompt work of one step, at most


class EngineLimits(NamedTuple):
    """The limits of an engine that its shadow queues share. Seconds, tokens."""

    itl: float
    ttft: float
    batch_tokens: int
    kv_tokens: float
    sequences: float
    longest_step: float


def shadow_engine(model: StepTimeModel, context: float, output: float, limits: EngineLimits) -> ShadowEngine:
    """The engine by its step-time model, the mean context of its running requests and their mean output, in tokens.

    Embeddings and scores have an output of at most one token: there is no inter-token time that prompts could lengthen.
    """
    itl = limits.itl if output > 1.0 else math.inf
    sequence = max(model.sequence + model.kv_token * context, _LEAST_SECONDS)
    by_itl = (itl - model.base) / sequence
    by_memory = limits.kv_tokens / max(context, 1.0)
    longest = max(limits.longest_step - model.base, model.prefill_token * _LEAST_CHUNK)
    prefill = min(model.prefill_token * limits.batch_tokens, longest)
    return ShadowEngine(
        base=max(model.base, _LEAST_SECONDS),
        sequence=sequence,
        output=max(output, 1.0),
        places=max(1.0, min(by_itl, by_memory, limits.sequences)),
        itl=itl,
        ttft=limits.ttft,
        longest_prefill=max(prefill, _LEAST_SECONDS),
    )


class ShadowQueues:
    """The queues of one engine, and its counters since the start."""

    def __init__(self) -> None:
        self.arrived = 0
        self.unreachable = 0  # late even alone
        self.late = [0.0] * len(LOADS)  # per load; a request counts as part of a whole where the load has copies of it
        self._queues = [(0.0, 0.0, 0.0)] * len(LOADS)  # running requests; seconds of work, of unreachable work
        self._previous = [0.0] * _COPIES  # work of the requests before, newest first
        self._at = 0.0

    def arrive_unjudged(self) -> None:
        """Count a request of an engine whose step times are not known yet."""
        self.arrived += 1

    def arrive(self, now: float, own: float, engine: ShadowEngine) -> None:
        """A request with `own` seconds of prompt work arrives at `now`. O(len(LOADS)).

        Loads below 1 take each request with probability x, evenly. Loads above 1 take copies of the requests before, half
        way between two arrivals: round robin over fewer replicas spreads them like that. All arrivals are judged. One whose
        `now` is before that of the one before it arrives together with it."""
        elapsed, self._at = max(0.0, now - self._at), max(self._at, now)
        self.arrived += 1
        drawn = self.arrived * _GOLDEN % 1.0
        base, sequence, output, places, itl, ttft, longest = engine
        reachable = own + base * max(1.0, own / longest) <= ttft
        self.unreachable += not reachable
        previous, late, queues, yielded = self._previous, self.late, self._queues, PERFMODEL.shadow.yield_seconds
        for index, (load, copies, chance, weight) in enumerate(_DRAWS):
            running, work, lost = queues[index]
            beside = base + sequence * min(running, places)
            prefill = itl - beside
            if running < 1.0 or prefill > longest:
                prefill = longest
            elif prefill < _LEAST_SHARE * beside:
                prefill = min(_LEAST_SHARE * beside, longest)
            step = beside + prefill
            share = prefill / step
            place_seconds = output * step / places
            if load > 1.0:
                done = min(work, share * elapsed / 2.0)
                for more in previous[: copies + (drawn < chance)]:
                    wait, place = (work - done + more) / share, (running + 1.0 - places) * place_seconds
                    if wait <= ttft and place <= ttft:
                        running += 1.0
                        work += more
                    elif more > 0.0:  # else a copy of an unreachable request
                        late[index] += weight
            busy = min((work + lost) / share, elapsed)
            steps = busy / step + (elapsed - busy) / beside
            if running <= places:
                running *= math.exp(-steps / output)
            else:
                running = max(0.0, running - places * steps / output)
            work -= share * busy
            if work < 0.0:
                lost, work = max(0.0, lost + work), 0.0
            elif lost > yielded * share:  # overdue work takes its place in the order again
                work, lost = work + lost - yielded * share, yielded * share
            wait = (work + own) / share
            if running + 1.0 > places:
                wait = max(wait, own / share + (running + 1.0 - places) * place_seconds)
            idle = running < 1.0 and work < _LEAST_SECONDS  # a reachable request is in time there
            if reachable and not idle and step + wait > ttft:
                late[index] += weight
            elif load >= 1.0 or drawn < load:
                running += 1.0
                if reachable:
                    work += own
                else:
                    lost += own * max(load, 1.0)
            queues[index] = (running, work, lost)
        self._previous = [own if reachable else 0.0, *previous[:-1]]
