"""`status`: what the operator says it saw and did. Limits here are ones that the writer keeps by construction."""

from typing import Annotated, Literal

from pydantic import Field

from sluice_operator.api.base import Model

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class SLOStatus(Model):
    """What clients got lately."""

    ttft_milliseconds: float | None = None
    """Time to first token at the attainment percentile, over the window."""
    itl_milliseconds: float | None = None
    """Inter-token time at the attainment percentile, over the window."""
    attainment_percent: float | None = None
    """Share of the requests that met both targets."""


class AdmissionStatus(Model):
    """The per-replica limit in force."""

    concurrency: int | None = None
    """Requests that one replica may run at once."""
    reason: str | None = None
    """What binds it, e.g. InterTokenLatency or KVOccupancy."""


class ColdStart(Model):
    """How long a replica takes from wanted to ready, measured per phase, in seconds."""

    schedule: float | None = None
    """Until a node was found."""
    pull: float | None = None
    """Until the container ran."""
    load: float | None = None
    """Until the weights were in memory."""
    warm: float | None = None
    """Until the engine answered."""
    total: float | None = None
    """All of it."""


class MeasuredStart(ColdStart):
    """One measured start."""

    pod: Annotated[str, Field(max_length=253)]
    """Whose."""


class ForecastStatus(Model):
    """How the load moves, as the law has learned it; a new operator goes on from here."""

    requests_per_second: float | None = None
    """Arrivals now, refused ones included."""
    planned_requests_per_second: float | None = None
    """What is planned for: a quantile of the arrivals when a replica ordered now would serve."""
    dispersion: float | None = None
    """Variance over mean of arrival counts: 1 is Poisson, more is bursty."""
    volatility: float | None = None
    """How far the rate walks, as a share of itself per square root of a second."""
    output_tokens: float | None = None
    """Tokens of a mean answer."""
    prompt_tokens: float | None = None
    """Tokens of a mean prompt."""
    cached_prompt_tokens: float | None = None
    """How many of them were found in the prefix cache."""
    model_trust: float | None = None
    """How far the engines' own step-time model is believed: 1 as long as reality agrees with it."""


class DecisionRecord(Model):
    """One turn of a dial, with the numbers that were used."""

    time: Time
    """When."""
    kind: str
    """Which dial: replicas or admission."""
    from_: Annotated[int | None, Field(alias="from")] = None
    """Its value before."""
    to: int | None = None
    """Its value after."""
    reason: str
    """What bound, in one CamelCase word."""
    message: str | None = None
    """The same as a sentence."""
    numbers: dict[str, float] = Field(default={}, max_length=64)
    """The numbers that were used, by name."""
    advised: bool | None = None
    """True where it was only advice: scaling.mode was Advise, and nothing was carried out."""


class Condition(Model):
    """One observation, as Kubernetes writes conditions."""

    type: Annotated[str, Field(max_length=316)]
    """Ready, Available, Progressing, ModelLoaded, ScalingActive, MetricsAvailable, SLOMet or Paused."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, in one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, as a sentence with a next step."""
    last_transition_time: Time
    """When status last changed."""
    observed_generation: int | None = None
    """The metadata.generation this was judged for."""


class LLMDeploymentStatus(Model):
    """The observed state."""

    observed_generation: int | None = None
    """The metadata.generation that this status speaks of."""
    replicas: int | None = None
    """Pods that exist."""
    ready_replicas: int | None = None
    """Pods that serve."""
    desired_replicas: int | None = None
    """Pods that the control law wants."""
    replicas_summary: str | None = None
    """Ready and desired as kubectl prints them, e.g. 2/3."""
    selector: str | None = None
    """Selects the engine pods; read by /scale."""
    url: str | None = None
    """Where clients inside the cluster send requests."""
    slo: SLOStatus | None = None
    """What clients got lately."""
    kv_occupancy_percent: Annotated[float | None, Field(alias="kvOccupancyPercent")] = None
    """How full the KV caches are on average."""
    admission: AdmissionStatus | None = None
    """The per-replica limit in force."""
    cold_start_seconds: ColdStart | None = None
    """How long a replica usually takes to start: the middle one of coldStarts."""
    cold_starts: Annotated[
        tuple[MeasuredStart, ...], Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The last starts, newest last: the horizon of the forecast is four fifths of them."""
    forecast: ForecastStatus | None = None
    """How the load moves."""
    reason: str | None = None
    """Why the resource is in the state it is in, in one word."""
    decisions: Annotated[
        tuple[DecisionRecord, ...], Field(max_length=10, json_schema_extra={"x-kubernetes-list-type": "atomic"})
    ] = ()
    """The last decisions, newest last."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=16,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    """Observations, one per type."""
