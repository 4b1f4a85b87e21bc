"""The spec of a resource in the units of the performance model: seconds and shares."""

import math
from dataclasses import replace

from sluice_operator.api import LLMDeploymentSpec
from sluice_perfmodel.slo_limits import Targets
from sluice_perfmodel.workload import Work


def targets(spec: LLMDeploymentSpec) -> Targets:
    """The targets of spec.slo, in seconds and shares."""
    return Targets(
        ttft=spec.slo.ttft_milliseconds / 1000.0,
        itl=spec.slo.itl_milliseconds / 1000.0,
        attainment=min(float(spec.slo.attainment_percent) / 100.0, 0.9999),
    )


def reachable_targets(spec: LLMDeploymentSpec, work: Work) -> Targets:
    """The targets that such requests can miss: a request of one output token has no inter-token time."""
    return targets(spec) if work.output > 1.0 else replace(targets(spec), itl=math.inf)


def max_concurrency(spec: LLMDeploymentSpec) -> int:
    """The largest number of requests that one replica may run at once."""
    return min(max(spec.admission.concurrency.min, spec.admission.concurrency.max), spec.engine.scheduling.max_num_seqs)
