"""Defines the affinity of the engine pod: to nodes by their labels, and to nodes by the pods that they run."""

import re
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import MAX_LABEL_KEY, OBJECT_NAME, VOLUME_NAME, LabelKey, LabelValue
from sluice_operator.api.template.label_selector import Keys, LabelSelector, selector_rules

_WHOLE_NUMBER: Final = "^[0-9]+$"

Weight = Annotated[int, Field(ge=1, le=100)]
NodeName = Annotated[str, Field(max_length=253, pattern=OBJECT_NAME)]
Namespace = Annotated[str, Field(max_length=63, pattern=VOLUME_NAME)]


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
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """Its relation to the values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = ()
    """The values."""


class NodeFieldRequirement(Model):
    """A condition on the name of the node."""

    key: Literal["metadata.name"]
    """metadata.name."""
    operator: Literal["In", "NotIn"]
    """Its relation to the value."""
    values: Annotated[tuple[NodeName, ...], Field(min_length=1, max_length=1)]
    """The name of one node."""


class NodeSelectorTerm(Model):
    """Conditions that a node must all meet. An empty term matches no node."""

    match_fields: Annotated[tuple[NodeFieldRequirement, ...], Field(max_length=16)] = ()
    """Conditions on the name of the node."""
    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], Field(max_length=16)] = ()
    """Conditions on labels of the node."""


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
    """The terms."""


class PreferredSchedulingTerm(Model):
    """A term that counts for nodes that meet it."""

    weight: Weight
    """What the term counts."""
    preference: NodeSelectorTerm
    """The term."""


class NodeAffinity(Model):
    """Affinity to nodes by their labels."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """The nodes that may run the pod."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...], Field(max_length=8)
    ] = ()
    """Preferences among these nodes."""


class PodAffinityTerm(Model):
    """Pods whose nodes, or the zones of these nodes, attract or repel the engine pod."""

    RULES: ClassVar[tuple[Rule, ...]] = selector_rules(
        "affinity",
        selectors=("label_selector", "namespace_selector"),
        lists=("match_label_keys", "mismatch_label_keys"),
    )

    topology_key: Annotated[str, Field(min_length=1, max_length=MAX_LABEL_KEY)]
    """topologyKey is the node label that is the same in one place, e.g. kubernetes.io/hostname."""
    label_selector: LabelSelector | None = None
    """labelSelector selects pods. Defaults to those of this LLMDeployment."""
    namespaces: Annotated[tuple[Namespace, ...], Field(max_length=16)] = ()
    """namespaces of the pods. Defaults to this one, unless there is a namespaceSelector."""
    namespace_selector: LabelSelector | None = None
    """namespaceSelector selects further ones; an empty one, all."""
    match_label_keys: Keys = ()
    """matchLabelKeys are labels with the value of the new pod (Kubernetes 1.31)."""
    mismatch_label_keys: Keys = ()
    """mismatchLabelKeys are labels with another value than the new pod's (Kubernetes 1.31)."""


class WeightedPodAffinityTerm(Model):
    """A term that counts for nodes that meet it."""

    weight: Weight
    """What the term counts."""
    pod_affinity_term: PodAffinityTerm
    """The term."""


class PodAffinity(Model):
    """Affinity or anti-affinity to pods."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], Field(max_length=8)
    ] = ()
    """Terms that must all hold."""
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...], Field(max_length=8)
    ] = ()
    """Preferences among the nodes that remain."""


class Affinity(Model):
    """Affinity selects and prefers nodes, as in the spec of a pod."""

    node_affinity: NodeAffinity | None = None
    """nodeAffinity selects nodes by their labels and names."""
    pod_affinity: PodAffinity | None = None
    """podAffinity selects nodes near certain pods."""
    pod_anti_affinity: PodAffinity | None = None
    """podAntiAffinity selects nodes away from certain pods."""
