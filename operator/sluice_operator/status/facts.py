"""Input of the status: what one pass observed and did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.values import Decision
from sluice_operator.canary import CanaryState
from sluice_operator.cluster.fleet import ObservedFleet
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.revisions.values import Choice
from sluice_operator.status.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that one pass observed and did."""

    generation: int
    spec: LLMDeploymentSpec | None = None  # None if the resource does not parse
    parse_errors: tuple[str, ...] = ()  # one sentence each
    conflict: str = ""  # the object of another owner that has the name of a child
    unrouted: str = ""  # the older resource of another namespace whose served name it has, so that no gateway serves it
    gateway_url: str = ""  # where clients reach the model, if a NetworkPolicy closes its own Service to them
    model_problem: Problem | None = None  # no pod of this spec could serve its model, so none is started
    model_not_checked: str = ""  # why the model was not checked before there are pods, as a clause
    write_error: str = ""  # the operator's write that the API server rejected, and the reason
    fleet: ObservedFleet = field(default_factory=lambda: ObservedFleet(deployment=None, pods=()))
    rollout: Rollout = field(default_factory=Rollout)  # state after the writes of this pass
    choice: Choice | None = None  # of the pod template; None if the resource does not parse
    decision: Decision | None = None
    limit_errors: tuple[str, ...] = ()  # one sentence per engine that did not accept its limits in this pass
    canary: CanaryState = field(default_factory=CanaryState)
    canary_weight: int = 0  # percent of the requests
    estimates_problem: str = ""  # why the autoscaler's estimates could not be read or saved
    external_writer: str = ""  # the decision's message about an external writer of the Deployment's replicas
    previous: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # conditions of the last status, by type
    previous_canary: Mapping[str, Any] = field(default_factory=dict)  # as the last status has it

    @property
    def is_applied(self) -> bool:
        """True if the spec was parsed, its model may fit and its children could be written."""
        return not (self.parse_errors or self.conflict or self.model_problem or self.write_error)

    @property
    def is_rolled_back(self) -> bool:
        """True if the pods are of an earlier spec because those of this one did not start."""
        return self.choice is not None and self.choice.failure is not None

    @property
    def is_paused(self) -> bool:
        """True if the user paused the resource."""
        return self.spec is not None and self.spec.paused
