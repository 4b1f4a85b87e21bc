"""The `LLMDeployment` resource as frozen types: the one source of the CRD, of `sluice up FILE` and of the operator.

Field names are camelCase on the wire and snake_case here. The docstring of each field is what `kubectl explain`
prints. `parse` is the one way in.
"""

from sluice_operator.api.engine import (
    Accelerator,
    EngineSpec,
    EnvVar,
    KVCache,
    Resources,
    Scheduling,
    Template,
    Toleration,
)
from sluice_operator.api.llmdeployment import LLMDeployment
from sluice_operator.api.parse import InvalidResource, parse
from sluice_operator.api.spec import (
    SLO,
    Admission,
    Concurrency,
    LLMDeploymentSpec,
    ModelSpec,
    Rollout,
    Scaling,
    Schedule,
)
from sluice_operator.api.status import (
    AdmissionStatus,
    ColdStart,
    Condition,
    DecisionRecord,
    LLMDeploymentStatus,
    SLOStatus,
)

__all__ = [
    "SLO",
    "Accelerator",
    "Admission",
    "AdmissionStatus",
    "ColdStart",
    "Concurrency",
    "Condition",
    "DecisionRecord",
    "EngineSpec",
    "EnvVar",
    "InvalidResource",
    "KVCache",
    "LLMDeployment",
    "LLMDeploymentSpec",
    "LLMDeploymentStatus",
    "ModelSpec",
    "Resources",
    "Rollout",
    "SLOStatus",
    "Scaling",
    "Schedule",
    "Scheduling",
    "Template",
    "Toleration",
    "parse",
]
