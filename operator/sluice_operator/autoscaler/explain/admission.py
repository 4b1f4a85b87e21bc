"""Explanations of the admission dial."""

from typing import Final

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.explain import wording
from sluice_operator.autoscaler.replicas.need import Need
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_operator.autoscaler.values import Reason

REJECTING: Final = "Refusing"  # binding while requests are rejected


def limit_changed(snapshot: Snapshot, need: Need, change: tuple[int, int], itl: float | None, binding: str) -> Reason:
    """The limits in force changed, by the engines' own loop inside the bounds. `itl`: mean inter-token time, seconds."""
    (before, after), target = change, snapshot.spec.slo.itl_milliseconds
    why = {
        "Bounds": "bounds hold while replicas start" if after < before else "bounds are open",
        "KVOccupancy": "KV cache binds",
        "TimeToFirstToken": "first tokens come later than the last bucket, so bounds hold",
    }.get(binding, "ITL nears its target" if after < before else "ITL has room")
    measured = f" Tokens come every {itl * 1000:.0f} ms on the mean (target {target})." if itl is not None else ""
    sentence = f"{before} → {after} requests at once per replica: {why}.{measured}"
    return Reason("admission", before, after, binding, sentence, wording.numbers(snapshot, need))


def requests_rejected(snapshot: Snapshot, need: Need, limit: int, coming: float | None, ordered: int) -> Reason:
    """Why the fleet rejects requests.

    `coming` is seconds until the next replica serves, None where none is starting. `ordered` replicas are set now, by
    any writer.
    """
    window, queue = snapshot.window, snapshot.spec.admission.max_queue_seconds
    count, served = window.outcome.rejected, window.rate("finished_total")
    sentence = (
        f"{count:.0f} request{'' if round(count) == 1 else 's'} rejected in {window.seconds:.0f} s: about "
        f"{wording.rate(window.rate('arrived_total'))} req/s come, {wording.rate(served)} are served, and more would have "
        f"waited over {queue} s (admission.maxQueueSeconds). {_remedy(snapshot.spec, need, coming, ordered)}"
    )
    numbers = (*wording.numbers(snapshot, need), ("refused", round(count, 4)), ("servedRate", round(served, 4)))
    return Reason("admission", limit, limit, REJECTING, sentence, numbers)


def _remedy(spec: LLMDeploymentSpec, need: Need, coming: float | None, ordered: int) -> str:
    """What ends the rejections: a replica that is starting, or a change that the user can make."""
    mode, needed = spec.scaling.mode, need.replicas
    if coming is not None:
        return f"Another replica should serve in {coming:.0f} s."
    if mode != "Auto" and needed > ordered:
        step = "raise spec.replicas" if mode == "External" else "scale the Deployment"
        return (
            f"{wording.replicas(needed)} are needed, {ordered} set, and mode {mode} adds none: {step} or set "
            "scaling.mode Auto."
        )
    if mode == "Auto" and needed > spec.scaling.max_replicas:
        return f"{needed} replicas are needed, maxReplicas is {spec.scaling.max_replicas}: raise it."
    return "A higher admission.maxQueueSeconds would have let them wait instead."
