"""Defines `status`, the observed state and the last decisions. The operator respects every bound by construction."""

from typing import Annotated, Literal

from pydantic import Field

from sluice_operator.api.base import Model

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class SLOStatus(Model):
    """Latency and SLO attainment of recent requests."""

    ttft_milliseconds: float | None = None
    """ttftMilliseconds is the time to first token at the attainment percentile over the last 30 s, in milliseconds."""
    itl_milliseconds: float | None = None
    """itlMilliseconds is the inter-token latency at the attainment percentile over the last 30 s, in milliseconds."""
    attainment_percent: float | None = None
    """attainmentPercent is the share of requests that met both targets over the last 30 s, in percent."""


class AdmissionStatus(Model):
    """Per-replica concurrency limit in force."""

    concurrency: int | None = None
    """concurrency is the number of requests that one replica may run at once."""
    reason: str | None = None
    """reason is the constraint that set the limit, e.g. InterTokenLatency or KVOccupancy."""


class ColdStart(Model):
    """Measured time from the creation of a pod until it is ready, by phase, in seconds."""

    schedule: float | None = None
    """schedule is the time from the creation of the pod until the pod is bound to a node, in seconds."""
    pull: float | None = None
    """pull is the time from the kubelet's acceptance of the pod until the container runs, including the image pull, in
    seconds."""
    load: float | None = None
    """load is the time from the start of the container until the pod is ready, without warm, in seconds. It is mostly
    the time to load the weights."""
    warm: float | None = None
    """warm is the duration of the engine's warm-up after the weights are loaded, in seconds."""
    total: float | None = None
    """total is the sum of the phases, in seconds."""


class MeasuredStart(ColdStart):
    """MeasuredStart is the measured cold start of one pod."""

    pod: Annotated[str, Field(max_length=253)]
    """pod is the name of the pod."""


class ForecastStatus(Model):
    """The autoscaler's estimates of the load and of its own error. A restarted operator continues from rememberedReplicas
    and the mean tokens, and measures the others anew."""

    requests_per_second: float | None = None
    """requestsPerSecond is the current arrival rate, rejected requests included."""
    growth: float | None = None
    """growth is the factor by which the load grows until a replica created now would be ready, 1 or more."""
    remembered_replicas: int | None = None
    """rememberedReplicas is the number of replicas that the load of the last quarter of an hour needed."""
    predicted_attainment_percent: float | None = None
    """predictedAttainmentPercent is the share of the last hour's requests that the replay of the engines' shadow queues
    predicts to be good with the replicas that were ready, in percent. It is absent until requests could be compared."""
    attainment_percent: float | None = None
    """attainmentPercent is the share of requests that were good in the same time, in percent."""
    model_error: float | None = None
    """modelError is the factor on the load by which the autoscaler corrects the replay, 1 or more. It is more than 1 if
    more requests missed the SLO than the replay predicts."""
    output_tokens: float | None = None
    """outputTokens is the mean number of output tokens per request."""
    prompt_tokens: float | None = None
    """promptTokens is the mean number of prompt tokens per request."""
    cached_prompt_tokens: float | None = None
    """cachedPromptTokens is the mean number of prompt tokens per request found in the prefix cache."""


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
    numbers: dict[str, float] = Field(default={}, max_length=64)
    """numbers are the numbers that the decision was based on, by name."""
    advised: bool | None = None
    """advised is true if scaling.mode was Advise, so that the decision was recorded but not carried out."""


class Condition(Model):
    """Condition contains details for one aspect of the current state of the resource."""

    type: Annotated[str, Field(max_length=316)]
    """type is the type of the condition: Ready, Available, Progressing, ModelLoaded, ScalingActive, AdmissionActive,
    MetricsAvailable, SLOMet or Paused."""
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
    """desiredReplicas is the number of replicas that the autoscaler computed."""
    replicas_summary: str | None = None
    """replicasSummary is ready/desired replicas as printed by kubectl, e.g. 2/3."""
    selector: str | None = None
    """selector is the label selector of the engine pods, for the scale subresource."""
    url: str | None = None
    """url is the base URL for clients inside the cluster."""
    slo: SLOStatus | None = None
    """slo contains the latency and the SLO attainment of recent requests."""
    kv_occupancy_percent: Annotated[float | None, Field(alias="kvOccupancyPercent")] = None
    """kvOccupancyPercent is the mean KV cache occupancy, in percent."""
    admission: AdmissionStatus | None = None
    """admission is the per-replica concurrency limit in force."""
    cold_start_seconds: ColdStart | None = None
    """coldStartSeconds is the median of coldStarts by total time, in seconds."""
    cold_starts: Annotated[
        tuple[MeasuredStart, ...], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """coldStarts are the most recent measured cold starts, newest last. The operator plans for the growth of the load over
    the 80th percentile of their total times."""
    forecast: ForecastStatus | None = None
    """forecast contains the autoscaler's estimates of the load and of its own error."""
    reason: str | None = None
    """reason is the cause of the current state, as one CamelCase word."""
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
