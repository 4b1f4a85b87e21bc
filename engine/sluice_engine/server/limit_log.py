"""Log lines for changes of the concurrency limit: each with its reason, and with advice when the reason changes."""

import logging
from typing import Final

from sluice.logs import FIELDS
from sluice_engine import messages
from sluice_engine.limits import LimitsInForce

WORDS: Final = {
    "itl": "the inter-token latency target",
    "kv": "the memory of the KV cache",
    "bounds": "its bounds",
    "cold": "its upper bound, until the step-time model has seen enough steps",
}

log = logging.getLogger("sluice.limits")


class LimitLog:
    """Logs changes of the concurrency limit. The line of a new reason is longer than the following ones."""

    def __init__(self, started: LimitsInForce) -> None:
        self._limit, self._reason = started.concurrency, started.reason

    def on_step(self, report: messages.StepReport) -> None:
        """Logs a change since the last report."""
        in_force = report.limits
        limit, reason = in_force.concurrency, in_force.reason
        if (limit, reason) == (self._limit, self._reason):
            return
        before, new_reason = self._limit, reason != self._reason
        self._limit, self._reason = limit, reason
        if limit == before and reason != "itl":
            return  # the same limit for another reason, which asks nothing of the reader
        text = f"concurrency limit {before} → {limit}: set by {WORDS.get(reason, reason)}"
        advice = _advice(report) if new_reason else ""
        level = logging.WARNING if advice and 2 * limit < in_force.limits.concurrency_max else logging.INFO
        fields = {"from": before, "to": limit, "reason": reason, "maximum": in_force.limits.concurrency_max}
        log.log(level, "%s", text + advice, extra={FIELDS: fields})


def _advice(report: messages.StepReport) -> str:
    """What limits the concurrency, with numbers, and the options that change it; empty if nothing does."""
    in_force = report.limits
    most = in_force.limits.concurrency_max
    if in_force.reason == "itl":
        base, sequence = report.model[0], report.model[1]
        return (
            f" of {in_force.limits.itl_target * 1000:g} ms. A step takes about {(base + sequence) * 1000:.3g} ms with one "
            f"request. To admit more than {in_force.concurrency} of {most}, raise --itl-ms (on a cluster: "
            "spec.slo.itlMilliseconds), or use a faster device or a smaller model."
        )
    if in_force.reason == "kv":
        return (
            f", with {report.blocks_held} of {report.blocks_held + report.blocks_cached + report.blocks_free} blocks held."
            f" To admit more than {in_force.concurrency} of {most}, raise --kv-size or lower --max-model-length."
        )
    return ""
