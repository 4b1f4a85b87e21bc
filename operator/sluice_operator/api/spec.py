"""`spec`: the desired state. Only fields that do something are declared."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.engine import EngineSpec
from sluice_operator.api.words import MODEL_URI, PERCENT, SERVED_NAME, Cron, TimeZone


class ModelSpec(Model):
    """Which model is served."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.uri.contains('/../') && !self.uri.endsWith('/..')",
            sentence="model.uri must not leave its folder by a .. segment",
            holds=lambda m: "/../" not in m.uri and not m.uri.endswith("/.."),
        ),
        # While a new name rolls out, old pods refuse it and new pods refuse the old one: no client could be served.
        Rule(
            cel="has(self.servedName) == has(oldSelf.servedName) && "
            "(!has(self.servedName) || self.servedName == oldSelf.servedName)",
            sentence="model.servedName must not change while clients ask for it: "
            "create a second LLMDeployment with the new name",
            holds=None,
        ),
    )

    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=MODEL_URI)]
    """Where the model's folder is (config.json, *.safetensors, tokenizer): pvc://claim/path on a PersistentVolumeClaim of
    this namespace, mounted read-only; file:///path on this machine (sluice up) or inside the engine's image."""
    served_name: Annotated[str, Field(min_length=1, max_length=128, pattern=SERVED_NAME)] | None = None
    """The `model` that clients ask for. Default: metadata.name. Cannot be changed."""
    max_model_length: Annotated[int, Field(ge=16, le=1_048_576)] | None = None
    """Longest prompt plus answer, in tokens. Default: what the model's config says."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of weights and cache. auto: what the model's config says and the processor computes in."""


class SLO(Model):
    """A request is good when its time to first token and its mean inter-token time meet both targets. A change reaches
    running engines without restarting them."""

    ttft_milliseconds: Annotated[int, Field(ge=1, le=3_600_000)] = 2000
    """Target of the time to first token."""
    itl_milliseconds: Annotated[int, Field(ge=1, le=60_000)] = 50
    """Target of a request's mean inter-token time."""
    attainment_percent: Annotated[str, Field(max_length=8, pattern=PERCENT)] = "99"
    """The SLO holds when at least this share of all offered requests is good; refused and failed ones are not."""


class Schedule(Model):
    """A floor under the replicas at certain times: never fewer from then on, for so long."""

    cron: Cron
    """When it begins: minute, hour, day of the month, month, day of the week, e.g. "0 8 * * 1-5"."""
    timezone: TimeZone = "UTC"
    """In which time zone, e.g. Europe/Berlin."""
    duration_seconds: Annotated[int, Field(ge=60, le=604_800)]
    """For how long. At most a week."""
    min_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Never fewer than this meanwhile. They are ordered a measured cold start early."""


class Scaling(Model):
    """How many replicas."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            sentence="scaling.minReplicas must be less than or equal to scaling.maxReplicas",
            holds=lambda s: s.min_replicas <= s.max_replicas,
        ),
        Rule(
            cel="self.schedules.all(one, one.minReplicas <= self.maxReplicas)",
            sentence="scaling.schedules must not have a minReplicas above scaling.maxReplicas",
            holds=lambda s: all(one.min_replicas <= s.max_replicas for one in s.schedules),
        ),
    )

    mode: Literal["Auto", "Advise", "External", "Off"] = "Auto"
    """Auto: decide and act. Advise: decide and record, do not act. External: spec.replicas rules, written through /scale
    by an HPA or KEDA. Off: spec.replicas rules, nothing is decided."""
    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Never fewer than this. 0: none after scaleToZeroAfterSeconds without a request, where a front door holds the first
    one until a replica is ready (`sluice up` has one); without such a front door one replica stays."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Never more than this."""
    target_kv_occupancy_percent: Annotated[int, Field(ge=1, le=100, alias="targetKVOccupancyPercent")] = 80
    """How full the KV caches may be on average before a replica is added."""
    scale_down_stabilization_seconds: Annotated[int, Field(ge=0, le=86_400)] = 120
    """A replica leaves only when fewer were enough for this long, and for at least as long as a cold start takes; up to
    three times as long where prefix caches spare much work, because a replica that comes back has a cold one."""
    scale_to_zero_after_seconds: Annotated[int, Field(ge=10, le=604_800)] = 600
    """With minReplicas 0: the last replica leaves after so long without any request."""
    schedules: Annotated[tuple[Schedule, ...], Field(max_length=16)] = ()
    """Floors at certain times; the highest of those that are on counts, minReplicas at least."""


class Concurrency(Model):
    """Bounds of the per-replica concurrency limit."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.min <= self.max",
            sentence="admission.concurrency.min must be less than or equal to admission.concurrency.max",
            holds=lambda c: c.min <= c.max,
        ),
    )

    min: Annotated[int, Field(ge=1, le=4096)] = 4
    """Auto never goes below this."""
    max: Annotated[int, Field(ge=1, le=4096)] = 256
    """Auto never goes above this; Fixed holds it. Never above engine.scheduling.maxNumSeqs."""


class Admission(Model):
    """How much each replica admits. A change reaches running engines without restarting them."""

    mode: Literal["Auto", "Fixed", "Off"] = "Auto"
    """Auto: the limit moves inside the bounds with latency and KV. Fixed: it stays at concurrency.max. Off: only the
    engine's own ceilings hold."""
    concurrency: Concurrency = Concurrency()
    """Bounds of the number of requests that one replica runs at once."""
    max_queue_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """How long a request may wait before it runs; the waiting room is sized from it."""


class Rollout(Model):
    """How a change of the pod reaches the replicas."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.maxSurge > 0 || self.maxUnavailable > 0",
            sentence="rollout.maxSurge and rollout.maxUnavailable must not both be 0: no pod could ever be replaced",
            holds=lambda r: r.max_surge > 0 or r.max_unavailable > 0,
        ),
    )

    max_surge: Annotated[int, Field(ge=0, le=100)] = 1
    """How many pods more than wanted may exist while rolling."""
    max_unavailable: Annotated[int, Field(ge=0, le=100)] = 0
    """How many pods may be missing while rolling."""
    drain_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """How long a leaving pod may take to finish the requests it runs."""


class LLMDeploymentSpec(Model):
    """The desired state."""

    model: ModelSpec
    """Which model is served."""
    engine: EngineSpec = EngineSpec()
    """How each replica runs. Changes here roll the pods."""
    slo: SLO = SLO()
    """What a good request is, and how many must be good."""
    scaling: Scaling = Scaling()
    """How many replicas."""
    admission: Admission = Admission()
    """How much each replica admits."""
    rollout: Rollout = Rollout()
    """How a change of the pod reaches the replicas."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Read in scaling modes External and Off, and written through /scale; ignored in Auto and Advise."""
    paused: bool = False
    """true: the operator observes and reports but writes nothing; engines serve on."""
