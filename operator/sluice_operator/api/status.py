"""Defines `status`, the observed state and the last decisions. The operator respects every bound by construction."""

from typing import Annotated, Literal

from pydantic import Field

from sluice_operator.api.base import Model
from sluice_operator.api.patterns import NUMBER

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
# The API has no floats, because JSON writers round them differently: a number with decimals is a string.
Number = Annotated[str, Field(max_length=32, pattern=NUMBER)]


class SLOStatus(Model):
    """Latency and SLO attainment of recent requests."""

    ttft_milliseconds: int | None = None
    """ttftMilliseconds is the time to first token at the attainment percentile over the last 30 s, in milliseconds,
    rounded up."""
    itl_milliseconds: int | None = None
    """itlMilliseconds is the inter-token latency at the attainment percentile over the last 30 s, in milliseconds,
    rounded up."""
    attainment_percent: Number | None = None
    """attainmentPercent is the share of requests that met both targets over the last 30 s, in percent, e.g. "99.4"."""


class AdmissionStatus(Model):
    """Per-replica concurrency limit in force."""

    concurrency: int | None = None
    """concurrency is the number of requests that one replica may run at once."""
    reason: str | None = None
    """reason is the constraint that set the limit, e.g. InterTokenLatency or KVOccupancy."""


class ModelStatus(Model):
    """The model that the pods serve, for a model that they fetch."""

    uri: Annotated[str, Field(max_length=1024)]
    """uri is the spec.model.uri that the revision belongs to."""
    revision: Annotated[str, Field(max_length=64)]
    """revision is the commit of the hub, or the digest of the bucket's listing, that the first ready pod fetched. Later
    pods of the same hf:// URI fetch the same commit. Change spec.model.uri to serve another one."""


class CanaryStatus(Model):
    """The newest canary rollout."""

    phase: Literal["Progressing", "Promoting", "Promoted", "RolledBack"]
    """phase is how far it is. Promoting: all pods are being replaced by pods of the new spec."""
    step: int
    """step is the current or last step, from 1."""
    weight_percent: int
    """weightPercent is the canary's share of the requests now, in percent."""
    reason: Annotated[str, Field(max_length=64)]
    """reason is why it is in this phase, as one CamelCase word."""
    message: Annotated[str, Field(max_length=2048)]
    """message explains the reason, with the measured numbers."""


class ColdStart(Model):
    """Measured time from the creation of a pod until it is ready, by phase, in seconds."""

    schedule: Number | None = None
    """schedule is the time from the creation of the pod until the pod is bound to a node, in seconds."""
    pull: Number | None = None
    """pull is the time from the kubelet's acceptance of the pod until the container runs, including the image pull, in
    seconds."""
    fetch: Number | None = None
    """fetch is the duration of the download of the model, in seconds; 0 for a model on a volume or in the cache."""
    load: Number | None = None
    """load is the time from the start of the container until the pod is ready, without fetch and warm, in seconds. It is mostly
    the time to load the weights."""
    warm: Number | None = None
    """warm is the duration of the engine's warm-up after the weights are loaded, in seconds."""
    total: Number | None = None
    """total is the sum of the phases, in seconds."""


class ForecastStatus(Model):
    """The load that the autoscaler plans for, and how well it predicted the last hour."""

    requests_per_second: Number | None = None
    """requestsPerSecond is the current arrival rate, rejected requests included."""
    growth: Number | None = None
    """growth is the factor by which the load grows until a replica created now would be ready, 1 or more."""
    predicted_attainment_percent: Number | None = None
    """predictedAttainmentPercent is the share of the last hour's requests that the replay of the engines' shadow queues
    predicts to be good with the replicas that were ready, in percent. It is absent until requests could be compared."""
    attainment_percent: Number | None = None
    """attainmentPercent is the share of requests that were good in the same time, in percent."""
    model_error: Number | None = None
    """modelError is the factor on the load by which the autoscaler corrects the replay, 1 or more. It is more than 1 if
    more requests missed the SLO than the replay predicts."""


class DecisionRecord(Model):
    """DecisionRecord is one scaling or admission decision, with the numbers it was based on."""

    time: Time
    """time is when the decision was recorded."""
    kind: str
    """kind is what the decision changes: replicas or admission."""
    from_: Annotated[int | None, Field(alias="from")] = None
    """from is the value before the decision."""
    to: int | None = None
    """to is the value after the decision."""
    reason: str
    """reason is the binding constraint, as one CamelCase word."""
    message: str | None = None
    """message is the explanation of the decision, as a sentence."""
    numbers: dict[str, Number] = Field(default={}, max_length=64)
    """numbers are the numbers that the decision was based on, by name, with six significant digits."""
    advised: bool | None = None
    """advised is true if scaling.mode was Advise, so that the decision was recorded but not carried out."""


class Condition(Model):
    """Condition contains details for one aspect of the current state of the resource."""

    type: Annotated[str, Field(max_length=316)]
    """type is the type of the condition: Ready, Available, Progressing, ModelLoaded, ScalingActive, AdmissionActive,
    MetricsAvailable, SLOMet, Paused or UpgradeAvailable."""
    status: Literal["True", "False", "Unknown"]
    """status of the condition, one of True, False, Unknown."""
    reason: Annotated[str, Field(max_length=1024)]
    """reason contains a programmatic identifier indicating the reason for the condition's last transition, in CamelCase."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """message is a human readable message indicating details about the status, with the next step if one is needed."""
    last_transition_time: Time
    """lastTransitionTime is the last time the condition transitioned from one status to another."""
    observed_generation: int | None = None
    """observedGeneration is the .metadata.generation that the condition was set based upon."""


class LLMDeploymentStatus(Model):
    """status is the observed state of the LLMDeployment."""

    observed_generation: int | None = None
    """observedGeneration is the most recent .metadata.generation observed by the operator."""
    replicas: int | None = None
    """replicas is the number of pods that are not terminating."""
    ready_replicas: int | None = None
    """readyReplicas is the number of pods with a Ready condition."""
    desired_replicas: int | None = None
    """desiredReplicas is the number of replicas that the autoscaler computed; in mode External spec.replicas, in mode
    Off the Deployment's count."""
    selector: str | None = None
    """selector is the label selector of the engine pods, for the scale subresource."""
    url: str | None = None
    """url is the base URL for clients inside the cluster: of the own Service, or of the gateway where a NetworkPolicy closes
    that to clients."""
    model: ModelStatus | None = None
    """model is the revision that the pods serve, for a model that they fetch."""
    image: Annotated[str | None, Field(max_length=1024)] = None
    """image is the engine image of the pods. It stays when a newer operator has another default image, until
    spec.rollout.upgradePolicy lets it move; the UpgradeAvailable condition then says how."""
    canary: CanaryStatus | None = None
    """canary is the newest canary rollout (spec.rollout.canary)."""
    slo: SLOStatus | None = None
    """slo contains the latency and the SLO attainment of recent requests."""
    kv_occupancy_percent: Annotated[int | None, Field(alias="kvOccupancyPercent")] = None
    """kvOccupancyPercent is the mean KV cache occupancy, in percent."""
    admission: AdmissionStatus | None = None
    """admission is the per-replica concurrency limit in force."""
    cold_start_seconds: ColdStart | None = None
    """coldStartSeconds is the median of the recent cold starts by total time, in seconds, by phase."""
    forecast: ForecastStatus | None = None
    """forecast is the load that the autoscaler plans for, and how well it predicted the last hour."""
    decisions: Annotated[
        tuple[DecisionRecord, ...], Field(max_length=10, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """decisions are the most recent scaling and admission decisions, newest last."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    """conditions are the latest available observations of the resource's state, one per type."""
