"""Explanations of the replicas dial."""

from dataclasses import replace
from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.explain import wording
from sluice_operator.autoscaler.replicas.prediction import Prediction
from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.replicas.replica_range import ReplicaRange
from sluice_operator.autoscaler.values import Reason
from sluice_perfmodel.capacity import Capacity

OTHER_WRITER: Final = "OtherWriter"  # binding where an external writer set the count


def scaled(spec: LLMDeploymentSpec, recommendation: Recommendation, after: int, window: float) -> Reason:
    """The law changed the replica count; a scale-in follows `window` seconds in which fewer were enough."""
    binding, before, reactive = recommendation.binding, recommendation.current, recommendation.reactive
    why = wording.BINDING_WORDS.get(binding, binding)
    if after < before and binding != "Idle":
        why = "fewer are enough"
    if after > before and reactive is not None:
        body = (
            f"{reactive.observation[0].upper()}{reactive.observation[1:]}, which the model did not predict; "
            f"the ratio of {reactive.ratio:.2f} is followed, to twice the ready replicas at most."
        )
    elif after > before:
        body = "" if recommendation.prediction is None else _up(spec, recommendation, recommendation.prediction, after)
    else:
        body = _down(spec, recommendation, after, window)
    sentence = f"{before} → {wording.replicas(after)}: {why}. {body}".strip()
    return Reason("replicas", before, after, binding, sentence, wording.numbers(recommendation))


def bounded(allowed: ReplicaRange, before: int, after: int) -> Reason:
    """The count was outside the range."""
    change = f"{before} → {wording.replicas(after)}"
    if after > before and allowed.schedule:
        return Reason("replicas", before, after, "Schedule", f"{change}: {allowed.schedule}.")
    name, binding = ("minReplicas", "MinReplicas") if after > before else ("maxReplicas", "MaxReplicas")
    return Reason("replicas", before, after, binding, f"{change}: {name} is {after}.")


def created(allowed: ReplicaRange, after: int, mode: str) -> Reason:
    """The first count: at least one replica, so that a model that cannot load is detected at once."""
    if mode not in ("Auto", "Advise"):
        return follows_spec(0, after, mode)
    if allowed.schedule:
        return bounded(allowed, 0, after)
    change = f"0 → {wording.replicas(after)}"
    if not allowed.low:
        sentence = f"{change}: the first one shows that the model loads; it is removed again when idle."
        return Reason("replicas", 0, after, "FirstReplica", sentence)
    return Reason("replicas", 0, after, "MinReplicas", f"{change}: minReplicas is {after}.")


def scaled_from_zero(after: int, held: int, seconds: float) -> Reason:
    """The first held request starts a model that is scaled to zero."""
    held_words = "one request is" if held == 1 else f"{held} requests are"
    sentence = (
        f"0 → {wording.replicas(after)}: {held_words} held by the gateway. The answer begins in about {seconds:.0f} s "
        "(cold start). Without a request there would still be none."
    )
    return Reason("replicas", 0, after, "Wake", sentence, (("held", float(held)), ("coldStartSeconds", seconds)))


def scaled_to_zero(spec: LLMDeploymentSpec, seconds: float) -> Reason:
    """The last replica is removed (scale to zero)."""
    idle = spec.scaling.scale_to_zero_after_seconds
    sentence = (
        f"1 → 0 replicas: idle. No request came for {idle} s; any request would have kept it. The next one is held by the gateway "
        f"and starts a replica, in about {seconds:.0f} s (cold start)."
    )
    return Reason("replicas", 1, 0, "Idle", sentence, (("idleSeconds", float(idle)), ("coldStartSeconds", seconds)))


def follows_spec(before: int, after: int, mode: str) -> Reason:
    """Modes External and Off: the count follows spec.replicas."""
    sentence = f"{before} → {wording.replicas(after)}: follows spec.replicas (mode {mode})."
    return Reason("replicas", before, after, mode, sentence)


def advised(reason: Reason) -> Reason:
    """The same change in mode Advise, which carries out nothing."""
    return replace(reason, sentence=f"Advice (not carried out): {reason.sentence}", advised=True)


def external_write(before: int, after: int, writer: str = "") -> Reason:
    """An external writer changed the Deployment's count.

    `writer` is its field manager in the API server's record, empty where the record has none.
    """
    who = f"{writer!r}" if writer else "another writer"
    sentence = (
        f"{before} → {wording.replicas(after)}: {who} changed the Deployment's replicas. Sluice continues from that count; remove "
        "that writer, or set scaling.mode to External and write to /scale to own the count."
    )
    return Reason("replicas", before, after, OTHER_WRITER, sentence)


def unrecorded_write(before: int, after: int) -> Reason:
    """A count that the operator set without a record: it restarted between the two writes, or a response was lost."""
    sentence = (
        f"{before} → {wording.replicas(after)}: carried out, but the operator stopped before it recorded the reason."
    )
    return Reason("replicas", before, after, "CarriedOutBeforeRecorded", sentence)


def _up(spec: LLMDeploymentSpec, recommendation: Recommendation, prediction: Prediction, after: int) -> str:
    demand, turn, needed = prediction.demand, prediction.turning_rate, recommendation.scale_out_to
    waiting = f" and {demand.backlog:.0f} waiting" if demand.backlog else ""
    capped = f" {needed} are needed, maxReplicas is {after}." if needed > after else ""
    fewer = f" Up to {wording.rate(turn)} req/s {after - 1} would do." if turn > 0.0 else ""
    return (
        f"{wording.rate(demand.expected)} req/s expected in {demand.horizon:.0f} s (cold start){waiting}, one replica "
        f"holds {_one(spec, prediction.capacity)}.{capped}{_attainment(spec, recommendation, prediction)}{fewer}"
    )


def _attainment(spec: LLMDeploymentSpec, recommendation: Recommendation, prediction: Prediction) -> str:
    """The predicted attainment before and after, where the change restores the target."""
    now, then, planned = prediction.attainment_now, prediction.attainment, recommendation.planned_attainment
    if not now < planned <= then:
        return ""
    target = float(spec.slo.attainment_percent)
    spent = planned >= target / 100.0 - 5e-4
    spare = "" if spent else f", {wording.percent(planned)} is enough by the error budget"
    return (
        f" {wording.percent(now)} of requests would be good as it is, {wording.percent(then)} with "
        f"{recommendation.scale_out_to} (target {target:g} %{spare})."
    )


def _down(spec: LLMDeploymentSpec, recommendation: Recommendation, after: int, window: float) -> str:
    before, prediction, left = recommendation.current, recommendation.prediction, wording.replicas(after)
    if prediction is None or recommendation.binding == "Idle":
        return f"No more than {left} needed for {window:.0f} s. Any load that needs {before} would have kept them."
    return (
        f"{wording.rate(recommendation.demand.highest)} req/s at most, one replica holds "
        f"{_one(spec, prediction.capacity)}; no more than {left} needed for {window:.0f} s. "
        f"Above {wording.rate(prediction.turning_rate)} req/s {before} would have stayed."
    )


def _one(spec: LLMDeploymentSpec, one: Capacity) -> str:
    """One replica's capacity in the terms of its binding constraint."""
    rate, binding = f"{wording.rate(one.rate)} req/s", one.binding
    if binding == "KVOccupancy":
        target = spec.scaling.target_kv_occupancy_percent
        return f"{rate} with {one.kv_occupancy:.0%} of its KV cache held (target {target} %)"
    if binding == "TimeToFirstToken":
        percent = spec.slo.attainment_percent
        return f"{rate} at {one.ttft:.2g} s TTFT p{percent} (target {spec.slo.ttft_milliseconds / 1000:g})"
    return f"{rate} at {one.itl * 1000:.0f} ms between tokens (target {spec.slo.itl_milliseconds})"
