"""The `LLMDeployment` resource as frozen types: the one source of the CRD, of `sluice up FILE` and of the operator.

Field names are camelCase on the wire and snake_case here. Each description is what `kubectl explain` prints.
Only fields that do something are declared.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Name = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Quantity = Annotated[str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]


class Model(BaseModel):
    """Base of every type here: frozen, camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="forbid")


class ModelSpec(Model):
    """Which model is served."""

    uri: Annotated[
        str, Field(max_length=1024, pattern=r"^(pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^\s]*)?|file:///[^\s]+)$")
    ]
    served_name: (
        Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9._/]*[A-Za-z0-9])?$")] | None
    ) = None
    max_model_length: Annotated[int, Field(ge=16, le=1_048_576)] | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"


class Accelerator(Model):
    """What one replica computes on."""

    resource: Annotated[str, Field(max_length=253)] = "nvidia.com/gpu"
    count: Annotated[int, Field(ge=0, le=1024)] = 1


class KVCache(Model):
    """How much memory the key-value cache takes."""

    size: Quantity | None = None
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9


class Scheduling(Model):
    """Hard ceilings of one engine step; memory is set aside for them at start."""

    max_num_seqs: Annotated[int, Field(ge=1, le=4096)] = 256
    max_batched_tokens: Annotated[int, Field(ge=16, le=1_048_576)] = 2048


class EnvVar(Model):
    """One plain environment variable."""

    name: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: Annotated[str, Field(max_length=4096)] = ""


class Template(Model):
    """An overlay on the engine pod: where it runs and what is added to it; nothing that lowers security."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()
    env: tuple[EnvVar, ...] = ()


class Resources(Model):
    """Requests and limits of the engine container."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class EngineSpec(Model):
    """How each replica runs."""

    image: Annotated[str, Field(max_length=1024)] | None = None
    accelerator: Accelerator = Accelerator()
    kv_cache: KVCache = KVCache()
    scheduling: Scheduling = Scheduling()
    resources: Resources = Resources()
    template: Template = Template()


class SLO(Model):
    """A request is good when its TTFT and its mean inter-token time meet both targets."""

    ttft_milliseconds: Annotated[int, Field(ge=1, le=3_600_000)] = 2000
    itl_milliseconds: Annotated[int, Field(ge=1, le=60_000)] = 50
    attainment_percent: Annotated[str, Field(max_length=8, pattern=r"^[0-9]{1,2}(\.[0-9]{1,3})?$|^100$")] = "99"


class Scaling(Model):
    """How many replicas."""

    mode: Literal["Auto", "Advise", "External", "Off"] = "Auto"
    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    target_kv_occupancy_percent: Annotated[int, Field(ge=1, le=100, alias="targetKVOccupancyPercent")] = 80
    scale_down_stabilization_seconds: Annotated[int, Field(ge=0, le=86_400)] = 180


class Concurrency(Model):
    """Bounds of the per-replica concurrency limit."""

    min: Annotated[int, Field(ge=1, le=4096)] = 4
    max: Annotated[int, Field(ge=1, le=4096)] = 256


class Admission(Model):
    """How much each replica admits."""

    mode: Literal["Auto", "Fixed", "Off"] = "Auto"
    concurrency: Concurrency = Concurrency()
    max_queue_seconds: Annotated[int, Field(ge=0, le=3600)] = 10


class Rollout(Model):
    """How a change of the pod reaches the replicas."""

    max_surge: Annotated[int, Field(ge=0, le=100)] = 1
    max_unavailable: Annotated[int, Field(ge=0, le=100)] = 0
    drain_seconds: Annotated[int, Field(ge=1, le=86_400)] = 300


class LLMDeploymentSpec(Model):
    """The desired state."""

    model: ModelSpec
    engine: EngineSpec = EngineSpec()
    slo: SLO = SLO()
    scaling: Scaling = Scaling()
    admission: Admission = Admission()
    rollout: Rollout = Rollout()
    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    paused: bool = False


class LLMDeployment(Model):
    """One model, served by as many replicas as its SLO needs."""

    model_config = ConfigDict(extra="ignore")  # apiVersion, kind and status travel beside these

    metadata: dict[str, Any]
    spec: LLMDeploymentSpec

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.metadata["name"])

    @property
    def served_name(self) -> str:
        """The `model` that clients ask for."""
        return self.spec.model.served_name or self.name
