"""Alerts on engines, gateways and the operator: which part is broken, often before clients notice."""

from typing import Final

from sluice import contract
from sluice.monitoring.alerts.rule import Alert
from sluice.monitoring.promql import Scope

_S: Final = Scope("", "5m")
_POD: Final = ("namespace", "pod")
_OUT: Final = 'state="out"'
_FAILED: Final = 'result="error"'
_WHERE: Final = "{{ $labels.namespace }}/{{ $labels.pod }}"

ENGINE_ALERTS: Final = (
    Alert(
        "SluiceEngineIsDown",
        "ticket",
        f'up{{job="{contract.ENGINE_APP}"}} == 0',
        "10m",
        f"Prometheus cannot read the metrics of the engine {_WHERE}",
        "The engine has not started, has crashed, or a NetworkPolicy keeps Prometheus from its admin port.",
        (
            "`kubectl describe pod` and `kubectl logs --previous` say why it does not run.",
            "It serves (`kubectl sluice status`): name your Prometheus in the chart's value `networkPolicy.metricsFrom`.",
        ),
    ),
    Alert(
        "SluiceEngineIsStuck",
        "page",
        f"{_S.total(contract.REQUESTS_RUNNING, by=_POD)} > 0 and {_S.rate(contract.BUSY_SECONDS, by=_POD)} == 0",
        "5m",
        f"The engine {_WHERE} has running requests and completes no step",
        "The engine's loop or the accelerator hangs. The liveness probe restarts the pod within a minute unless the fault is "
        "beneath the process.",
        (
            "`kubectl logs` for the last step; `nvidia-smi` on the node for Xid errors.",
            "Delete the pod. If the node repeats it, cordon the node.",
        ),
    ),
    Alert(
        "SluiceKVCacheIsFull",
        "ticket",
        f"{_S.total(contract.KV_OCCUPANCY_RATIO, by=_POD)} > 0.95 and {_S.rate(contract.PREEMPTIONS, by=_POD)} > 0.1",
        "10m",
        f"The KV cache of {_WHERE} is full and requests are preempted",
        "Preempted requests compute their prompts again, which costs throughput and latency.",
        (
            "Lower `admission.concurrency.max` or `scaling.targetKVOccupancyPercent`, or raise `maxReplicas`.",
            (
                "Give the cache more memory (`engine.kvCache`), a smaller dtype (`kvCache.dtype`), or host memory "
                "(`cpuOffloadGiB`)."
            ),
        ),
    ),
    Alert(
        "SluiceStepModelIsWrong",
        "ticket",
        f"{_S.total(contract.STEP_MODEL_ERROR, by=_POD)} > 0.5 and {_S.total(contract.STEP_MODEL_STEPS, by=_POD)} > 1000",
        "30m",
        f"The step times of {_WHERE} differ from its own model by {{{{ $value | humanizePercentage }}}}",
        "Autoscaling and admission of this deployment rest on measurements alone: they react instead of planning.",
        (
            "Compare step times by pod: another process on the accelerator or CPU throttling makes them irregular.",
            "Restart the pod if the load changed for good; please report a model for which it stays so.",
        ),
    ),
    Alert(
        "SluiceMountedFileIsInvalid",
        "ticket",
        f"max by (namespace, {contract.SERIES_LABEL}, file) ({_S.series(contract.MOUNTED_FILE_FAULT)}) > 0",
        "5m",
        "The file {{ $labels.file }} of {{ $labels.namespace }}/{{ $labels.llmdeployment }} cannot be used",
        "A changed Secret has a mistake. Engines go on with the last valid content, so a new key or certificate has no effect.",
        (
            "The engine's log names the entry and the mistake.",
            "Correct the Secret; engines follow within about a minute.",
        ),
    ),
    Alert(
        "SluiceMeasurementsAreLost",
        "ticket",
        f"sum by (namespace, pod) (increase({_S.series(contract.METRICS_FAULTS)}[15m])) > 0",
        "0m",
        f"The engine {_WHERE} failed to record metrics",
        "Requests are served, but counters and histograms lack some of them: alerts and autoscaling see less than there is.",
        ("The engine's log has the exception; please report it.",),
    ),
)

GATEWAY_ALERTS: Final = (
    Alert(
        "SluiceGatewayIsDown",
        "page",
        'sum by (namespace) (up{job="sluice-gateway"}) == 0',
        "2m",
        "No gateway in {{ $labels.namespace }} answers Prometheus",
        "Clients cannot reach any model through the gateway.",
        (
            "`kubectl get pods -n NAMESPACE -l app.kubernetes.io/name=sluice-gateway` and their logs.",
            "Until it is repaired, clients may use the Service of each LLMDeployment.",
        ),
    ),
    Alert(
        "SluiceReplicasAreOut",
        "ticket",
        f"max by (namespace) ({_S.series(contract.GATEWAY_REPLICAS, _OUT)}) > 0",
        "10m",
        "Gateways in {{ $labels.namespace }} have taken {{ $value }} replicas out of rotation",
        "Replicas are ready for Kubernetes but do not answer the gateway, so their share of the load falls on the others.",
        (
            (
                "Faults by kind are on the dashboard `Sluice: on call`: `refuses` and `unreachable` are network or policy, "
                "`silent` is a hanging pod."
            ),
            "Delete a pod that hangs. Check NetworkPolicies between gateway and engines.",
        ),
    ),
    Alert(
        "SluiceRetriesAreDenied",
        "ticket",
        f"{_S.rate(contract.GATEWAY_RETRIES_DENIED, by=('namespace',))} > 0",
        "10m",
        "Gateways in {{ $labels.namespace }} deny retries beyond their budget",
        "So many requests fail at their first replica that retries would add to an overload. Clients see these errors.",
        (
            "Retries by reason: `lost` are replicas that die, `rejected` is an overload.",
            "See SluiceEngineIsDown and SluiceRequestsAreLost.",
        ),
    ),
    Alert(
        "SluiceStreamsBreak",
        "ticket",
        f"{_S.rate(contract.GATEWAY_BROKEN_STREAMS, by=('namespace',))} - "
        f"{_S.rate(contract.GATEWAY_RESUMED, by=('namespace',))} > 0.01",
        "10m",
        "Streams through gateways in {{ $labels.namespace }} break and are not resumed",
        "Replicas end in the middle of answers. Clients see an error event, or a connection that closes.",
        (
            "`kubectl get events` for evictions, OOM kills and node failures.",
            "`rollout.drainSeconds` shorter than the longest answers: raise it.",
        ),
    ),
)

OPERATOR_ALERTS: Final = (
    Alert(
        "SluiceOperatorIsDown",
        "page",
        'absent(up{job="sluice-operator"} == 1)',
        "5m",
        "No operator answers Prometheus",
        "Engines go on serving with their last limits, but nothing is scaled, rolled out or repaired.",
        (
            "`kubectl get pods -A -l app.kubernetes.io/name=sluice-operator` and the log of the previous container.",
            "`kubectl sluice check` names missing permissions, an outdated CRD and unreachable images.",
        ),
    ),
    Alert(
        "SluiceOperatorHasNoLeader",
        "page",
        f"sum by (namespace) ({_S.series(contract.OPERATOR_LEADER)}) == 0",
        "5m",
        "No operator in {{ $labels.namespace }} holds the Lease",
        "Operators run but none works: the API server refuses the Lease, or its holder is gone and its term has not ended.",
        (
            "`kubectl get lease -n NAMESPACE` shows the holder and its last renewal.",
            "The operator's log says what it waits for: the CRD, the Lease or its key.",
        ),
    ),
    Alert(
        "SluicePassesFail",
        "ticket",
        f"{_S.rate(contract.OPERATOR_RECONCILE, _FAILED, ('namespace',))} / "
        f"{_S.rate(contract.OPERATOR_RECONCILE, by=('namespace',))} > 0.1",
        "15m",
        "{{ $value | humanizePercentage }} of the reconcile passes of {{ $labels.namespace }} fail",
        "The operator cannot read or write objects, so some LLMDeployments are not scaled.",
        (
            "The operator's log has one line per failed pass with the request and the answer of the API server.",
            "403: compare the ClusterRole with the chart's; `kubectl sluice check`. 409 or 422: a webhook or quota refuses.",
        ),
    ),
    Alert(
        "SluiceScrapesFail",
        "ticket",
        f"{_S.rate(contract.OPERATOR_SCRAPE_FAILURES, by=('namespace',))} > 0",
        "15m",
        "The operator in {{ $labels.namespace }} cannot read the metrics of some engines",
        "Decisions for their deployments treat these pods as busy: no scale-in, and admission keeps its last limits.",
        (
            "The condition `MetricsAvailable` names the deployments (`kubectl sluice status -A`).",
            "NetworkPolicies must admit the operator to port 8001 of engines; the chart's do.",
        ),
    ),
)
