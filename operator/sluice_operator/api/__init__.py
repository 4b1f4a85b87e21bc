"""Defines the `LLMDeployment` resource as frozen types, the only source of the CRD, `sluice up FILE` and the operator.

Field names are camelCase in YAML and JSON and snake_case in Python. `kubectl explain` prints the docstring of each
field. `parse` is the only entry point for documents.
"""

from sluice_operator.api.canary import Canary
from sluice_operator.api.engine import (
    Accelerator,
    EngineSpec,
    KVCache,
    Resources,
    Scheduling,
)
from sluice_operator.api.llmdeployment import LLMDeployment
from sluice_operator.api.parse import InvalidResource, parse
from sluice_operator.api.routing import Routing
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
    CanaryStatus,
    ColdStart,
    Condition,
    DecisionRecord,
    LLMDeploymentStatus,
    SLOStatus,
)
from sluice_operator.api.template import EnvVar, Template, Toleration

__all__ = [
    "SLO",
    "Accelerator",
    "Admission",
    "AdmissionStatus",
    "Canary",
    "CanaryStatus",
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
    "Routing",
    "SLOStatus",
    "Scaling",
    "Schedule",
    "Scheduling",
    "Template",
    "Toleration",
    "parse",
]
