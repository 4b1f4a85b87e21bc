"""Defines the affinity of the engine pod: to nodes by their labels, and to nodes by the pods that they run."""

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import LabelKey, LabelValue
from sluice_operator.api.template.label_selector import LabelSelector

_WHOLE_NUMBER: Final = "^[0-9]+$"

Weight = Annotated[int, Field(ge=1, le=100)]


def _has_its_values(requirement: Any) -> bool:
    values = requirement.values
    match requirement.operator:
        case "Exists" | "DoesNotExist":
            return not values
        case "In" | "NotIn":
            return bool(values)
    return len(values) == 1 and re.match(_WHOLE_NUMBER, values[0]) is not None


class NodeSelectorRequirement(Model):
    """A condition on one label of the node."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.operator in ['Exists', 'DoesNotExist'] ? size(self.values) == 0 : size(self.values) > 0 && "
            "(self.operator in ['In', 'NotIn'] || "
            f"(size(self.values) == 1 && self.values[0].matches('{_WHOLE_NUMBER}')))",
            sentence="engine.template.affinity.nodeAffinity must have values with In and NotIn, one whole number with Gt "
            "and Lt, and no values with Exists and DoesNotExist",
            holds=_has_its_values,
        ),
    )

    key: LabelKey
    """key is the key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """operator is the relation of the label to the values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = ()
    """values are compared with the label."""


class NodeSelectorTerm(Model):
    """Conditions that a node must all meet. An empty term matches no node."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], Field(max_length=16)] = ()
    """matchExpressions are conditions on labels of the node."""


class NodeSelector(Model):
    """Terms of which a node must meet at least one."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="size(self.nodeSelectorTerms) > 0",
            sentence="engine.template.affinity.nodeAffinity must have a term where it has nodeSelectorTerms",
            holds=lambda s: len(s.node_selector_terms) > 0,
        ),
    )

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(max_length=8)]
    """nodeSelectorTerms are the terms."""


class PreferredSchedulingTerm(Model):
    """A term that counts for nodes that meet it."""

    weight: Weight
    """weight is what the term counts, 1 to 100."""
    preference: NodeSelectorTerm
    """preference is the term."""


class NodeAffinity(Model):
    """Affinity to nodes by their labels."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """requiredDuringSchedulingIgnoredDuringExecution selects the nodes that may run the pod."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...], Field(max_length=8)
    ] = ()
    """preferredDuringSchedulingIgnoredDuringExecution are preferences among these nodes."""


class PodAffinityTerm(Model):
    """Pods whose nodes, or the zones of these nodes, attract or repel the engine pod."""

    topology_key: LabelKey
    """topologyKey is the node label whose value makes two nodes one place, e.g. kubernetes.io/hostname."""
    label_selector: LabelSelector | None = None
    """labelSelector selects pods of this namespace. Defaults to those of this LLMDeployment."""


class WeightedPodAffinityTerm(Model):
    """A term that counts for nodes that meet it."""

    weight: Weight
    """weight is what the term counts, 1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """podAffinityTerm is the term."""


class PodAffinity(Model):
    """Affinity or anti-affinity to pods."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], Field(max_length=8)
    ] = ()
    """requiredDuringSchedulingIgnoredDuringExecution are terms that must all hold."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...], Field(max_length=8)
    ] = ()
    """preferredDuringSchedulingIgnoredDuringExecution are preferences among the nodes that remain."""


class Affinity(Model):
    """Affinity selects and prefers nodes, as in the spec of a pod."""

    node_affinity: NodeAffinity | None = None
    """nodeAffinity selects nodes by their labels."""
    pod_affinity: PodAffinity | None = None
    """podAffinity selects nodes near certain pods."""
    pod_anti_affinity: PodAffinity | None = None
    """podAntiAffinity selects nodes away from certain pods."""
