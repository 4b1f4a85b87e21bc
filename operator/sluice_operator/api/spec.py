"""Defines `spec`, the desired state. Every declared field has an effect."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sluice_operator.api.auth import Auth
from sluice_operator.api.base import Model, Rule
from sluice_operator.api.canary import Canary
from sluice_operator.api.cron import newest, zone_of
from sluice_operator.api.engine import EngineSpec
from sluice_operator.api.model_source import CredentialsSecretRef, ModelCache, TokenSecretRef
from sluice_operator.api.patterns import MODEL_URI, PERCENT, SERVED_NAME, Cron, TimeZone
from sluice_operator.api.routing import Routing


class ModelSpec(Model):
    """The model to serve."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!self.uri.contains('/../') && !self.uri.endsWith('/..')",
            sentence="model.uri must not leave its folder by a .. segment",
            holds=lambda m: "/../" not in m.uri and not m.uri.endswith("/.."),
        ),
        # While a new name rolls out, old pods reject it and new pods reject the old one: every client would see errors.
        Rule(
            cel="has(self.servedName) == has(oldSelf.servedName) && "
            "(!has(self.servedName) || self.servedName == oldSelf.servedName)",
            sentence="model.servedName must not change while clients ask for it: "
            "create a second LLMDeployment with the new name",
            holds=None,
        ),
    )

    uri: Annotated[str, Field(min_length=1, max_length=1024, pattern=MODEL_URI)]
    """uri is the location of the model (config.json, *.safetensors, tokenizer). hf://org/name@revision is a repository of
    a Hugging Face hub (HF_ENDPOINT in engine.template.env names another than huggingface.co); without a revision it is
    the default branch. s3://bucket/prefix is a folder of an S3 bucket (AWS_ENDPOINT_URL and AWS_REGION in
    engine.template.env). Each engine pod downloads it, unless cache has it. pvc://claim/path is a folder on a
    PersistentVolumeClaim of this namespace, mounted read-only. file:///path is a folder on the local machine (sluice
    up) or inside the engine image."""
    token_secret_ref: TokenSecretRef | None = None
    """tokenSecretRef names the Secret entry with the access token of the hub, for private and gated models. A corrected
    token applies within about a minute, without a restart."""
    credentials_secret_ref: CredentialsSecretRef | None = None
    """credentialsSecretRef names the Secret with the credentials of an S3 bucket. Without it, the pods use the role that
    their platform gives them, or none. Corrected credentials apply within about a minute, without a restart."""
    cache: ModelCache | None = None
    """cache is a folder that engine pods share, so that a model is downloaded once. Without it, each pod downloads the
    model into its own ephemeral storage."""
    served_name: Annotated[str, Field(min_length=1, max_length=128, pattern=SERVED_NAME)] | None = None
    """servedName is the model name that clients send in the `model` field. It is immutable. Defaults to
    metadata.name."""
    max_model_length: Annotated[int, Field(ge=16, le=1_048_576)] | None = None
    """maxModelLength is the maximum length of prompt plus output, in tokens. Defaults to the length in the model's
    config."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """dtype is the data type of the weights and the KV cache. auto: the data type in the model's config if the device
    computes in it, else float32. Defaults to auto."""
    quantization: Literal["none", "int8", "fp8"] = "none"
    """quantization is how the engine stores the weights and multiplies by them. int8: 8-bit integers with one scale per
    output, activations quantised per token; engines without an accelerator only, for models with the structure of Llama
    or Qwen (other models are refused at start). Keys and values get one scale per head and token. It about halves the
    memory of bfloat16 and takes a third off a decode step. fp8: weights and inputs of products as e4m3
    floats, on one GPU of compute capability 8.9 or newer. GPTQ and AWQ checkpoints need no setting. Defaults to none."""


class SLO(Model):
    """Latency targets. A request is good if its time to first token (TTFT) and its mean inter-token latency (ITL) both
    meet their targets. A change reaches running engines within about a minute, without a restart. Engines apply the
    targets even if the operator is down."""

    ttft_milliseconds: Annotated[int, Field(ge=1, le=3_600_000)] = 2000
    """ttftMilliseconds is the target of the time to first token, in milliseconds. Defaults to 2000."""
    itl_milliseconds: Annotated[int, Field(ge=1, le=60_000)] = 50
    """itlMilliseconds is the target of the mean inter-token latency of a request, in milliseconds. Defaults to 50."""
    attainment_percent: Annotated[str, Field(max_length=8, pattern=PERCENT)] = "99"
    """attainmentPercent is the minimum share of good requests among all offered requests, in percent, as a string.
    Rejected and failed requests are not good. Defaults to "99"."""


class Schedule(Model):
    """Schedule is a minimum number of replicas that applies for a duration from each start time."""

    cron: Cron
    """cron is when the schedule starts: minute, hour, day of the month, month, day of the week, e.g. "0 8 * * 1-5"."""
    timezone: TimeZone = "UTC"
    """timezone is the time zone of cron, e.g. Europe/Berlin. The operator ignores a schedule with an unknown time zone
    and names it in the ScalingActive condition. Defaults to UTC."""
    duration_seconds: Annotated[int, Field(ge=60, le=604_800)]
    """durationSeconds is how long the schedule applies from each start, in seconds; at most one week."""
    min_replicas: Annotated[int, Field(ge=1, le=1000)]
    """minReplicas is the lower limit for the number of replicas while the schedule applies. The operator starts the
    replicas one measured cold start early."""


def unknown_zones(schedules: tuple[Schedule, ...]) -> tuple[str, ...]:
    """Return one sentence per schedule whose time zone this process has no data for; such a schedule never starts."""
    return tuple(
        f"spec.scaling.schedules[{place}].timezone must be a time zone such as UTC or Europe/Berlin, not {one.timezone}"
        for place, one in enumerate(schedules)
        if zone_of(one.timezone) is None
    )


class Scaling(Model):
    """Number of replicas, and the rules by which it changes."""

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
    """mode selects how the number of replicas is set. Auto: the operator decides and acts. Advise: the operator decides
    and records, but does not act. External: spec.replicas applies, written through the scale subresource by an HPA or
    KEDA. Off: the operator never writes the count; users or other tools scale the Deployment itself. Defaults to
    Auto."""
    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """minReplicas is the lower limit for the number of replicas. With 0 the operator scales to zero after
    scaleToZeroAfterSeconds without a request, provided that a gateway holds the next request until a replica is ready
    (the chart and `sluice up` have such a gateway); without one, one replica stays. Defaults to 1."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """maxReplicas is the upper limit for the number of replicas. Defaults to 1."""
    target_kv_occupancy_percent: Annotated[int, Field(ge=1, le=100, alias="targetKVOccupancyPercent")] = 80
    """targetKVOccupancyPercent is the mean KV cache occupancy above which the operator adds a replica, in percent.
    Defaults to 80."""
    scale_down_stabilization_seconds: Annotated[int, Field(ge=0, le=86_400)] = 120
    """scaleDownStabilizationSeconds is how long fewer replicas must have been sufficient before one is removed, in
    seconds. Defaults to 120."""
    burst_memory_seconds: Annotated[int, Field(ge=60, le=3600)] = 900
    """burstMemorySeconds is how long the operator keeps the replicas that a burst needed, in seconds. A longer time serves
    bursts that come back less often and costs more GPU-hours after each. Defaults to 900."""
    scale_to_zero_after_seconds: Annotated[int, Field(ge=10, le=604_800)] = 600
    """scaleToZeroAfterSeconds is how long no request must have arrived before the last replica is removed, in seconds.
    It applies only with minReplicas 0. Defaults to 600."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """priority orders the models that share the namespace's accelerator budget (see README): the lowest gives replicas
    first. Defaults to 0."""
    schedules: Annotated[tuple[Schedule, ...], Field(max_length=16)] = ()
    """schedules are lower limits for the number of replicas at certain times. The highest active one applies if it
    exceeds scaling.minReplicas."""


class Concurrency(Model):
    """Bounds of the per-replica concurrency limit, in requests."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.min <= self.max",
            sentence="admission.concurrency.min must be less than or equal to admission.concurrency.max",
            holds=lambda c: c.min <= c.max,
        ),
    )

    min: Annotated[int, Field(ge=1, le=4096)] = 4
    """min is the lower bound of the limit in mode Auto. Defaults to 4."""
    max: Annotated[int, Field(ge=1, le=4096)] = 256
    """max is the upper bound of the limit in mode Auto, and the limit itself in mode Fixed. The limit never exceeds
    engine.scheduling.maxNumSeqs. Defaults to 256."""


class Admission(Model):
    """Admission control of each replica. A change reaches running engines within about a minute, without a restart.
    Engines apply it even if the operator is down."""

    mode: Literal["Auto", "Fixed", "Off"] = "Auto"
    """mode selects how the concurrency limit is set. Auto: it moves within the bounds with latency and KV cache
    occupancy. Fixed: it is concurrency.max. Off: the operator sends no limits; each engine adjusts its own limit to the
    slo targets, up to engine.scheduling.maxNumSeqs. Defaults to Auto."""
    concurrency: Concurrency = Concurrency()
    """concurrency defines the bounds of the concurrency limit: the number of requests that one replica runs at once."""
    max_queue_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """maxQueueSeconds is the maximum time that a request waits before it runs, in seconds. The operator derives the
    queue length limit of each engine from it. Defaults to 10."""


class UpgradeWindow(Model):
    """A time in which pods may move to the operator's newest engine image."""

    cron: Cron
    """cron is when the window opens: minute, hour, day of the month, month, day of the week, e.g. "0 2 * * 6"."""
    timezone: TimeZone = "UTC"
    """timezone is the time zone of cron, e.g. Europe/Berlin. A window in an unknown time zone never opens; the
    UpgradeAvailable condition says so. Defaults to UTC."""
    duration_seconds: Annotated[int, Field(ge=60, le=604_800)] = 7200
    """durationSeconds is how long the window is open from each start, in seconds. A move that has begun is finished
    after it. Defaults to 7200."""


class Rollout(Model):
    """Rolling update of the engine pods."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.maxSurge > 0 || self.maxUnavailable > 0",
            sentence="rollout.maxSurge and rollout.maxUnavailable must not both be 0: no pod could ever be replaced",
            holds=lambda r: r.max_surge > 0 or r.max_unavailable > 0,
        ),
        Rule(
            cel="self.upgradePolicy != 'Window' || has(self.upgradeWindow)",
            sentence="rollout.upgradeWindow must be set where rollout.upgradePolicy is Window",
            holds=lambda r: r.upgrade_policy != "Window" or r.upgrade_window is not None,
        ),
    )

    max_surge: Annotated[int, Field(ge=0, le=100)] = 1
    """maxSurge is the maximum number of pods above the desired number during a rolling update. Defaults to 1."""
    max_unavailable: Annotated[int, Field(ge=0, le=100)] = 0
    """maxUnavailable is the maximum number of pods that may be unavailable during a rolling update. Defaults to 0."""
    drain_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300
    """drainSeconds is how long a terminating pod may take to finish its running requests, in seconds. Defaults to
    300."""
    progress_deadline_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """progressDeadlineSeconds is how long no further pod may become ready before the rollout counts as stalled, in
    seconds. It should exceed the time in which a pod starts and loads the model. Defaults to 600."""
    rollback: Literal["Auto", "Manual"] = "Manual"
    """rollback is what happens if the pods of a changed spec do not start within progressDeadlineSeconds. Manual: the old
    pods go on serving, and the Ready condition has the reason RolloutStalled. Auto: the pods also return to the last
    revision that was fully ready; the spec is tried again once model, engine, auth or drainSeconds change.
    Defaults to Manual."""
    upgrade_policy: Literal["OnChange", "Window", "Manual"] = "OnChange"
    """upgradePolicy is when the pods take what a newer operator renders: its engine image, unless engine.image is set,
    and its other settings. Until then they stay as they are. OnChange: with the next change of model, engine, auth or
    drainSeconds. Window: in upgradeWindow. Manual: never by themselves, and a change of the spec keeps the image. In all
    three the annotation that the UpgradeAvailable condition names takes it at once. Defaults to OnChange."""
    upgrade_window: UpgradeWindow | None = None
    """upgradeWindow is when pods take an upgrade, for upgradePolicy Window. The chart limits how many fleets move at the
    same time."""
    canary: Canary | None = None
    """canary tries a changed spec on a share of the requests before it replaces the pods that serve. Without it, a
    change applies to all pods, one after another, as upgrades and rollbacks always do."""


def window_is_open(rollout: Rollout, now: float) -> bool:
    """True if the policy is Window and its window is open. `now` is in seconds since 1970."""
    window = rollout.upgrade_window
    zone = None if window is None else zone_of(window.timezone)
    if window is None or zone is None or rollout.upgrade_policy != "Window":
        return False
    begun = newest(window.cron, zone, now)
    return begun is not None and now < begun + window.duration_seconds


class LLMDeploymentSpec(Model):
    """spec is the desired state of the LLMDeployment."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.model.quantization != 'int8' || self.engine.accelerator.count == 0",
            sentence="model.quantization int8 is for engines without an accelerator: set engine.accelerator.count to 0",
            holds=lambda s: s.model.quantization != "int8" or s.engine.accelerator.count == 0,
        ),
        Rule(
            cel="self.model.quantization != 'fp8' || self.engine.accelerator.count == 1",
            sentence="model.quantization fp8 is for engines with one accelerator: set engine.accelerator.count to 1",
            holds=lambda s: s.model.quantization != "fp8" or s.engine.accelerator.count == 1,
        ),
    )

    model: ModelSpec
    """model is the model to serve."""
    engine: EngineSpec = EngineSpec()
    """engine defines how each replica runs. A change triggers a rolling update of the pods."""
    slo: SLO = SLO()
    """slo defines the latency targets, and the share of requests that must meet them. A change reaches running engines
    within about a minute, without a restart."""
    scaling: Scaling = Scaling()
    """scaling defines the number of replicas, and the rules by which it changes."""
    admission: Admission = Admission()
    """admission defines the admission control of each replica. A change reaches running engines within about a minute,
    without a restart."""
    routing: Routing = Routing()
    """routing defines how the gateway chooses the replica of a request. A change applies to the next request and restarts
    nothing."""
    auth: Auth = Auth()
    """auth defines who may call the model, and the certificate of its API. A change of a reference triggers a rolling
    update of the pods; a change of a Secret does not."""
    rollout: Rollout = Rollout()
    """rollout is the strategy for rolling updates of the engine pods."""
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """replicas is the desired number of replicas in scaling mode External, written through the scale subresource. It is
    ignored in the other modes. Defaults to 1."""
    paused: bool = False
    """paused indicates that the operator must not act on this resource. While it is true, the operator observes and
    writes only status; engines continue to serve. Defaults to false."""
