"""Explanations: one sentence per decision with its numbers and the load that would have changed it.

The same text is in `status.decisions`, in the Event, in the log and in the output of `sluice explain`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.replicas.bounds import ReplicaRange
from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.values import Reason
from sluice_perfmodel.capacity import Capacity

REFUSING: Final = "Refusing"  # binding while requests are rejected
OTHER_WRITER: Final = "OtherWriter"  # binding where an external writer set the count

WORDS: Final[Mapping[str, str]] = {
    "InterTokenLatency": "ITL binds",
    "KVOccupancy": "KV cache binds",
    "TimeToFirstToken": "TTFT binds",
    "ConcurrencyLimit": "the concurrency limit binds",
    "Queue": "the queue binds",
    "Idle": "idle",
}


def scaled(spec: LLMDeploymentSpec, wanted: Recommendation, before: int, after: int, window: float) -> Reason:
    """The law changed the replica count; a scale-in follows `window` seconds in which fewer were enough."""
    binding = wanted.binding
    why = WORDS.get(binding, binding)
    if after < before and binding != "Idle":
        why = "fewer are enough"
    head = f"{before} → {_replicas(after)}: {why}."
    if after > before and wanted.reactive is not None:
        body = (
            f"{wanted.reactive.measured[0].upper()}{wanted.reactive.measured[1:]}, which the model did not expect; "
            f"the ratio of {wanted.reactive.ratio:.2f} is followed, to twice the ready replicas at most."
        )
    elif after > before:
        body = _up(spec, wanted, after)
    else:
        body = _down(spec, wanted, before, after, window)
    return Reason("replicas", before, after, binding, f"{head} {body}".strip(), _numbers(wanted))


def bounded(floor: ReplicaRange, before: int, after: int) -> Reason:
    """The count was outside the range."""
    if after > before and floor.schedule:
        return Reason("replicas", before, after, "Schedule", f"{before} → {_replicas(after)}: {floor.schedule}.")
    name = "minReplicas" if after > before else "maxReplicas"
    binding = "MinReplicas" if after > before else "MaxReplicas"
    return Reason("replicas", before, after, binding, f"{before} → {_replicas(after)}: {name} is {after}.")


def created(floor: ReplicaRange, after: int, mode: str) -> Reason:
    """The first count: at least one replica, so that a model that cannot load is detected at once."""
    if mode in ("Auto", "Advise"):
        if floor.schedule:
            return bounded(floor, 0, after)
        if not floor.low:
            sentence = f"0 → {_replicas(after)}: the first one shows that the model loads; idle, it leaves again."
            return Reason("replicas", 0, after, "FirstReplica", sentence)
        return Reason("replicas", 0, after, "MinReplicas", f"0 → {_replicas(after)}: minReplicas is {after}.")
    return followed(0, after, mode)


def woken(after: int, held: int, seconds: float) -> Reason:
    """The first held request starts a model that is scaled to zero."""
    held_words = "one request is" if held == 1 else f"{held} requests are"
    sentence = (
        f"0 → {_replicas(after)}: {held_words} held by the gateway. The answer begins in about {seconds:.0f} s (cold start). "
        "Without a request it would have gone on sleeping."
    )
    return Reason("replicas", 0, after, "Wake", sentence, (("held", float(held)), ("coldStartSeconds", seconds)))


def asleep(spec: LLMDeploymentSpec, seconds: float) -> Reason:
    """The last replica is removed (scale to zero)."""
    idle = spec.scaling.scale_to_zero_after_seconds
    sentence = (
        f"1 → 0 replicas: idle. No request came for {idle} s; any would have kept it. The next one is held by the gateway "
        f"and starts a replica, in about {seconds:.0f} s (cold start)."
    )
    return Reason("replicas", 1, 0, "Idle", sentence, (("idleSeconds", float(idle)), ("coldStartSeconds", seconds)))


def followed(before: int, after: int, mode: str) -> Reason:
    """Modes External and Off: the count follows spec.replicas."""
    sentence = f"{before} → {_replicas(after)}: spec.replicas says so (mode {mode})."
    return Reason("replicas", before, after, mode, sentence)


def advised(reason: Reason) -> Reason:
    """The same change in mode Advise, which carries out nothing."""
    return replace(reason, sentence=f"Advice (not carried out): {reason.sentence}", advised=True)


def taken_over(before: int, after: int, writer: str = "") -> Reason:
    """An external writer changed the Deployment's count.

    `writer` is its field manager in the API server's record, empty where the record has none.
    """
    who = f"{writer!r}" if writer else "another writer"
    sentence = (
        f"{before} → {_replicas(after)}: {who} changed the Deployment's replicas. Sluice goes on from there; remove that "
        "writer, or set scaling.mode to External and write to /scale to own the count."
    )
    return Reason("replicas", before, after, OTHER_WRITER, sentence)


def cut_off(before: int, after: int) -> Reason:
    """A count that the operator set without a record: it restarted between the two writes, or a response was lost."""
    sentence = f"{before} → {_replicas(after)}: carried out, but the operator was cut off before it could record why."
    return Reason("replicas", before, after, "CarriedOutBeforeRecorded", sentence)


def readmitted(
    spec: LLMDeploymentSpec, wanted: Recommendation, before: int, after: int, itl: float | None, binding: str
) -> Reason:
    """The limits in force changed, by the engines' own loop inside the bounds."""
    target = spec.slo.itl_milliseconds
    why = {
        "Bounds": "bounds hold while replicas are on their way" if after < before else "bounds are open",
        "KVOccupancy": "KV cache binds",
        "TimeToFirstToken": "first tokens come later than the last bucket, so bounds hold",
    }.get(binding, "ITL nears its target" if after < before else "ITL has room")
    seen = f" Tokens come every {itl * 1000:.0f} ms on the mean (target {target})." if itl is not None else ""
    sentence = f"{before} → {after} requests at once per replica: {why}.{seen}"
    return Reason("admission", before, after, binding, sentence, _numbers(wanted))


def refused(
    spec: LLMDeploymentSpec,
    wanted: Recommendation,
    limit: int,
    count: float,
    seconds: float,
    served: float,
    coming: float | None,
    ordered: int,
) -> Reason:
    """Why the fleet rejects requests.

    `count` requests were rejected in `seconds`; `served` is requests per second. `coming` is seconds until the next
    replica serves, None where none is starting. `ordered` replicas are set now, by any writer.
    """
    asked, queue, mode = wanted.demand, spec.admission.max_queue_seconds, spec.scaling.mode
    if coming is not None:
        then = f"Another replica should serve in {coming:.0f} s."
    elif mode != "Auto" and wanted.up > ordered:
        step = "scale the Deployment" if mode == "Advise" else "raise spec.replicas"
        then = (
            f"{_replicas(wanted.up)} are needed, {ordered} asked for, and mode {mode} adds none: {step} or set "
            "scaling.mode Auto."
        )
    elif mode == "Auto" and wanted.up > spec.scaling.max_replicas:
        then = f"{wanted.up} replicas are needed, maxReplicas is {spec.scaling.max_replicas}: raise it."
    else:
        then = "A higher admission.maxQueueSeconds would have let them wait instead."
    sentence = (
        f"{count:.0f} request{'' if round(count) == 1 else 's'} refused in {seconds:.0f} s: about "
        f"{_rate(asked.level)} req/s come, {_rate(served)} are served, and more would have waited over {queue} s (admission.maxQueueSeconds). {then}"
    )
    numbers = (*_numbers(wanted), ("refused", round(count, 4)), ("servedRate", round(served, 4)))
    return Reason("admission", limit, limit, REFUSING, sentence, numbers)


def _up(spec: LLMDeploymentSpec, wanted: Recommendation, after: int) -> str:
    prediction = wanted.prediction
    if prediction is None:
        return ""
    asked, one, turn = prediction.asked, prediction.capacity, prediction.turn
    percent = float(spec.slo.attainment_percent)
    before, met = prediction.predicted
    good = ""
    if before < wanted.goal <= met:
        spare = (
            ""
            if wanted.goal >= percent / 100.0 - 5e-4
            else f", {_percent(wanted.goal)} is enough after what was kept so far"
        )
        good = (
            f" {_percent(before)} of requests would be good as it is, {_percent(met)} with {wanted.up} "
            f"(target {percent:g} %{spare})."
        )
    waiting = f" and {asked.backlog:.0f} waiting" if asked.backlog else ""
    capped = f" {wanted.up} are needed, maxReplicas is {after}." if wanted.up > after else ""
    fewer = f" Up to {_rate(turn)} req/s {after - 1} would do." if turn > 0.0 else ""
    return (
        f"{_rate(asked.expected)} req/s expected in {asked.horizon:.0f} s (cold start){waiting}, one replica holds "
        f"{_one(spec, one)}.{capped}{good}{fewer}"
    )


def _down(spec: LLMDeploymentSpec, wanted: Recommendation, before: int, after: int, window: float) -> str:
    if wanted.prediction is None or wanted.binding == "Idle":
        return f"No more than {_replicas(after)} needed for {window:.0f} s. Any load that needs {before} would have kept them."
    one, turn = wanted.prediction.capacity, wanted.prediction.turn
    return (
        f"{_rate(wanted.demand.highest)} req/s at most, one replica holds {_one(spec, one)}; no more than "
        f"{_replicas(after)} needed for {window:.0f} s. Above {_rate(turn)} req/s {before} would have stayed."
    )


def _one(spec: LLMDeploymentSpec, one: Capacity) -> str:
    """One replica's capacity in the terms of its binding constraint."""
    rate, binding = f"{_rate(one.rate)} req/s", one.binding
    if binding == "KVOccupancy":
        target = spec.scaling.target_kv_occupancy_percent
        return f"{rate} with {one.kv_occupancy:.0%} of its KV cache held (target {target} %)"
    if binding == "TimeToFirstToken":
        percent = spec.slo.attainment_percent
        return f"{rate} at {one.ttft:.2g} s TTFT p{percent} (target {spec.slo.ttft_milliseconds / 1000:g})"
    return f"{rate} at {one.itl * 1000:.0f} ms between tokens (target {spec.slo.itl_milliseconds})"


def _numbers(wanted: Recommendation) -> tuple[tuple[str, float], ...]:
    numbers = [
        ("expectedRate", wanted.demand.expected),
        ("highestRate", wanted.demand.highest),
        ("waiting", wanted.demand.backlog),
        ("horizonSeconds", wanted.demand.horizon),
        ("dispersion", wanted.demand.arrivals.dispersion),
    ]
    if wanted.prediction is not None:
        one, (before, met) = wanted.prediction.capacity, wanted.prediction.predicted
        numbers += [
            ("replicaRate", one.rate),
            ("replicaConcurrency", float(one.concurrency)),
            ("replicaItlSeconds", one.itl),
            ("replicaTtftSeconds", one.ttft),
            ("replicaKvOccupancy", one.kv_occupancy),
            ("predictedAttainment", before),
            ("predictedAttainmentAfter", met),
        ]
    if wanted.reactive is not None:
        numbers.append(("ratio", wanted.reactive.ratio))
    return tuple((name, round(value, 4)) for name, value in numbers)


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}"


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"
