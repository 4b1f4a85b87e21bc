"""Every number that a peer's authors publish, beside its source: a comparison is valid only with the published law."""

import pytest

from sluice_sim.policies import apa, kpa
from sluice_sim.policies.dynamo import kalman, load, throughput
from sluice_sim.policies.hpa import behavior, ratio
from sluice_sim.policies.hpa.behavior import Policy
from sluice_sim.policies.llmd import slo, tokens
from sluice_sim.policies.metrics.samples import see
from sluice_sim.policies.registry import LAWS
from sluice_sim.policies.wva import hpa, queueing, v1, v2
from tests.operator.autoscaler.fleet import spec
from tests.sim.policies.pods import fleet, sample

WIDE = spec(scaling={"maxReplicas": 1000})
KUBERNETES = "Kubernetes documentation, Horizontal Pod Autoscaling"
KNATIVE = "knative/serving, config/core/configmaps/autoscaler.yaml"
LLMD = "llm-d/llm-d, guides/workload-autoscaling"
WVA = "llm-d-workload-variant-autoscaler"
DYNAMO = "ai-dynamo/dynamo, planner/config/defaults.py"


@pytest.mark.parametrize(
    ("law", "knob", "value", "source"),
    [
        ("hpa-queue", "averageValue", 5.0, "GKE, autoscaling inference: start the queue threshold at 3-5"),
        ("hpa-running", "averageValue", 16.0, f"{LLMD}/keda-epp/README.md"),
        ("hpa-kv", "averageValue", 0.8, f"{LLMD}/keda-epp-token-aware/README.md"),
        ("keda", "threshold", 5.0, "vLLM production-stack, helm/templates/scaledobject-vllm.yaml"),
        ("kpa", "target", 100.0, f"{KNATIVE}, container-concurrency-target-default"),
        ("apa", "targetValue", 0.5, "AIBrix documentation, metric-based autoscaling: gpu_cache_usage_perc"),
        ("llm-d-slo", "upThreshold", 0.55, f"{LLMD}/README.slo-aware.md, section 2"),
        ("llm-d-tokens", "prefillThreshold", 1.5, f"{LLMD}/keda-epp-token-aware/README.md"),
        ("wva-v1", "queueSpareTrigger", 3.0, f"{WVA}, docs/user-guide/saturation-analyzer.md"),
        ("wva-v2", "scaleUpThreshold", 0.85, f"{WVA}, internal/engines/analyzers/saturation_v2"),
        ("wva-queueing", "targets", 1.0, f"{WVA}, pkg/analyzer/queueanalyzer.go: the SLO itself"),
        ("dynamo-throughput", "sla", 1.0, f"{DYNAMO}: the SLA itself"),
        ("dynamo-load", "sla", 1.0, f"{DYNAMO}: the SLA itself"),
    ],
)
def test_a_laws_default_is_the_published_one(law: str, knob: str, value: float, source: str) -> None:
    default = LAWS[law].default()
    assert (default.knob.name, default.knob.default, default.setting) == (knob, value, value), source


TEN_IN_150: tuple[Policy, ...] = (Policy("Pods", 10, 150),)


@pytest.mark.parametrize(
    ("found", "value", "source"),
    [
        (behavior.PERIOD, 15.0, f"{KUBERNETES}: --horizontal-pod-autoscaler-sync-period"),
        (ratio.TOLERANCE, 0.1, f"{KUBERNETES}: --horizontal-pod-autoscaler-tolerance"),
        (behavior.DEFAULT.up_window, 0.0, f"{KUBERNETES}: default behavior"),
        (behavior.DEFAULT.down_window, 300.0, f"{KUBERNETES}: default behavior"),
        (set(behavior.DEFAULT.up), {Policy("Percent", 100, 15), Policy("Pods", 4, 15)}, f"{KUBERNETES}: default"),
        (set(behavior.DEFAULT.down), {Policy("Percent", 100, 15)}, f"{KUBERNETES}: default behavior"),
        (kpa.STABLE, 60.0, f"{KNATIVE}, stable-window"),
        (kpa.PANIC, 6.0, f"{KNATIVE}, panic-window-percentage 10"),
        (kpa.THRESHOLD, 2.0, f"{KNATIVE}, panic-threshold-percentage 200"),
        (kpa.UTILISATION, 0.7, f"{KNATIVE}, container-concurrency-target-percentage 70"),
        (kpa.UP_RATE, 1000.0, f"{KNATIVE}, max-scale-up-rate"),
        (kpa.DOWN_RATE, 2.0, f"{KNATIVE}, max-scale-down-rate"),
        (apa.TOLERANCE, 0.1, "vllm-project/aibrix, pkg/controller/podautoscaler: up and down fluctuation tolerance"),
        (apa.RATE, 2.0, "vllm-project/aibrix, pkg/controller/podautoscaler: max scale up and down rate"),
        (apa.BEHAVIOR.up_window, 0.0, "AIBrix documentation, metric-based autoscaling: scale-up cooldown"),
        (apa.BEHAVIOR.down_window, 300.0, "AIBrix documentation, metric-based autoscaling: scale-down cooldown"),
        (slo.QUANTILE, 0.9, f"{LLMD}/README.slo-aware.md, section 2"),
        (slo.RATE_WINDOW, 60.0, f"{LLMD}/README.slo-aware.md, section 2"),
        (slo.SMOOTHING, 45.0, f"{LLMD}/README.slo-aware.md, section 2"),
        (slo.CLAMP, 2.0, f"{LLMD}/README.slo-aware.md, section 2"),
        (slo.UP.default * slo.DOWN_OF_UP, 0.40, f"{LLMD}/README.slo-aware.md, section 2"),
        (slo.BEHAVIOR.up_window, 30.0, f"{LLMD}/README.slo-aware.md, HPA behavior"),
        (slo.BEHAVIOR.down_window, 180.0, f"{LLMD}/README.slo-aware.md, HPA behavior"),
        (set(slo.BEHAVIOR.up), {Policy("Percent", 100, 60), Policy("Pods", 4, 60)}, f"{LLMD}/README.slo-aware.md"),
        (set(slo.BEHAVIOR.down), {Policy("Pods", 1, 120)}, f"{LLMD}/README.slo-aware.md, HPA behavior"),
        (tokens.KV_THRESHOLD, 0.8, f"{LLMD}/keda-epp-token-aware/README.md"),
        (v1.WINDOW, 60.0, f"{WVA}, docs/user-guide/saturation-analyzer.md: max_over_time[1m]"),
        (v1.KV_FULL, 0.80, f"{WVA}, docs/user-guide/saturation-analyzer.md: kvCacheThreshold"),
        (v1.QUEUE_FULL, 5.0, f"{WVA}, docs/user-guide/saturation-analyzer.md: queueLengthThreshold"),
        (v1.KV_SPARE, 0.1, f"{WVA}, docs/user-guide/saturation-analyzer.md: kvSpareTrigger"),
        (v2.UP.default * v2.DOWN_OF_UP, 0.70, f"{WVA}, saturation_v2: scaleDownBoundary"),
        (v2.HISTORY, 10, f"{WVA}, saturation_v2/analyzer.go: rolling average of ten"),
        (queueing.QUEUE_TO_BATCH, 10, f"{WVA}, pkg/core/allocation.go: queue of ten batches"),
        (hpa.PERIOD, 60.0, f"{WVA}, charts/workload-variant-autoscaler/values.yaml"),
        (hpa.BEHAVIOR.up_window, 240.0, f"{WVA}, charts/workload-variant-autoscaler/values.yaml"),
        (hpa.BEHAVIOR.down_window, 240.0, f"{WVA}, charts/workload-variant-autoscaler/values.yaml"),
        (hpa.BEHAVIOR.up, TEN_IN_150, f"{WVA}, charts/workload-variant-autoscaler/values.yaml"),
        (hpa.BEHAVIOR.down, TEN_IN_150, f"{WVA}, charts/workload-variant-autoscaler/values.yaml"),
        (throughput.INTERVAL, 180.0, f"{DYNAMO}, throughput_adjustment_interval_seconds"),
        (load.INTERVAL, 5.0, f"{DYNAMO}, load_adjustment_interval_seconds"),
        (load.SENSITIVITY, 0.8, f"{DYNAMO}, load_scaling_down_sensitivity 80"),
        (kalman.LEVEL_NOISE, 1.0, "ai-dynamo/dynamo, planner/core/load/predictors.py"),
        (kalman.TREND_NOISE, 0.1, "ai-dynamo/dynamo, planner/core/load/predictors.py"),
        (kalman.OBSERVATION_NOISE, 10.0, "ai-dynamo/dynamo, planner/core/load/predictors.py"),
    ],
)
def test_a_laws_fixed_constants_are_the_published_ones(found: object, value: object, source: str) -> None:
    assert found == (pytest.approx(value) if isinstance(value, float) else value), source


def asked(law: str, **numbers: float) -> int | None:
    """What a law at its default asks for first, of two replicas that look like this."""
    default = LAWS[law].default()
    return default.decide(WIDE, fleet([sample(**numbers)] * 2), default.initial(), 0.0)[0].replicas


@pytest.mark.parametrize(
    ("law", "numbers", "expected"),
    [
        ("hpa-queue", {"waiting": 10.0}, 4),  # 2 · 10 / 5
        ("hpa-running", {"running": 24.0}, 3),  # 2 · 24 / 16
        ("hpa-kv", {"kv_occupancy": 0.96}, 3),  # 2 · 0.96 / 0.8 = 2.4
        ("keda", {"waiting": 7.0}, 3),  # 14 / 5 = 2.8
        ("kpa", {"running": 200.0, "waiting": 10.0}, 6),  # 420 / (100 · 0.7)
        ("apa", {"kv_occupancy": 0.75}, 3),  # 2 · 0.75 / 0.5
        ("llm-d-tokens", {"kv_occupancy": 0.96}, 3),  # 1.92 / 0.8 = 2.4
    ],
)
def test_own_example_each_law_reads_only_its_own_metric(law: str, numbers: dict[str, float], expected: int) -> None:
    assert asked(law, **numbers) == expected
    others = {"waiting": 40.0, "running": 300.0, "kv_occupancy": 1.0}
    if law in ("hpa-queue", "hpa-running", "hpa-kv", "keda", "apa"):
        assert asked(law, **{name: value for name, value in others.items() if name not in numbers}) in (1, 2)


def test_own_example_kpa_moves_at_its_published_rates() -> None:
    """It never more than halves, and from one pod goes to a thousand at most."""
    law = LAWS["kpa"].default()
    calm, empty = kpa.KpaMemory(started=True), fleet([sample()] * 7)
    assert law.decide(WIDE, empty, calm, 0.0)[0].replicas == 3
    assert kpa.scale(calm, 1e6, 1e6, 70.0, 1, 0.0)[0] == 1000


def test_own_example_the_variant_autoscaler_publishes_once_a_minute_and_adds_ten_in_150_seconds() -> None:
    """The HPA behind it waits 240 s for the lowest count of that time, then follows by ten pods in any 150 s."""
    published, counts, count = hpa.Published(), {}, 1
    for now in map(float, range(0, 451, 15)):
        if hpa.is_due(published, now):
            published = hpa.publish(published, 40, now)
            assert now % 60 == 0 and not hpa.is_due(published, now + 59)
        seen = see(WIDE, fleet([sample()] * count, now), now)
        count, published = hpa.follow(WIDE, published, seen, now)
        counts[now] = count
    assert sorted(set(counts.values())) == [1, 11, 21]
    assert min(at for at, pods in counts.items() if pods == 11) == 240.0
    assert min(at for at, pods in counts.items() if pods == 21) == 390.0
