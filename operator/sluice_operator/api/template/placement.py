"""Defines tolerations and topology spread constraints of the engine pod."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import MAX_LABEL_KEY, TAINT_KEY, LabelValue
from sluice_operator.api.template.label_selector import Keys, LabelSelector, selector_rules


class Toleration(Model):
    """Toleration allows the pod to run on nodes with a matching taint, as in the spec of a pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
            sentence="engine.template.tolerations must have a key unless the operator is Exists",
            holds=lambda t: bool(t.key) or t.operator == "Exists",
        ),
        Rule(
            cel="!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
            sentence="engine.template.tolerations must not have a value with the operator Exists",
            holds=lambda t: not t.value or t.operator != "Exists",
        ),
        Rule(
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            sentence="engine.template.tolerations must have the effect NoExecute where they have tolerationSeconds",
            holds=lambda t: t.toleration_seconds is None or t.effect == "NoExecute",
        ),
    )

    key: Annotated[str, Field(max_length=MAX_LABEL_KEY, pattern=TAINT_KEY)] | None = None
    """key is the taint key that the toleration applies to. An empty key with operator Exists matches every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """operator is the relation of the key to the value: Exists or Equal. Defaults to Equal."""
    value: LabelValue | None = None
    """value is the taint value that matches, for operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """effect is the taint effect that matches. If it is empty, all effects match."""
    toleration_seconds: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """tolerationSeconds is how long the pod tolerates a taint with effect NoExecute, in seconds. If it is not set, the
    pod tolerates the taint forever."""


class TopologySpreadConstraint(Model):
    """TopologySpreadConstraint spreads the pods over nodes or zones, as in the spec of a pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'",
            sentence="engine.template.topologySpreadConstraints must have whenUnsatisfiable: DoNotSchedule where they "
            "have minDomains",
            holds=lambda t: t.min_domains is None or t.when_unsatisfiable == "DoNotSchedule",
        ),
        *selector_rules("topologySpreadConstraints", selectors=("label_selector",), lists=("match_label_keys",)),
    )

    max_skew: Annotated[int, Field(ge=1, le=1000)]
    """maxSkew is the maximum difference in the number of pods between two domains."""
    topology_key: Annotated[str, Field(min_length=1, max_length=MAX_LABEL_KEY)]
    """topologyKey is the node label whose values are the domains, e.g. topology.kubernetes.io/zone."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """whenUnsatisfiable is what happens to a pod that would exceed maxSkew. DoNotSchedule: it waits. ScheduleAnyway: it
    gets the node with the smallest skew."""
    label_selector: LabelSelector | None = None
    """labelSelector selects the pods that are counted. Defaults to the pods of this LLMDeployment."""
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = None
    """minDomains is the minimum number of domains that must match, with DoNotSchedule."""
    match_label_keys: Keys = ()
    """matchLabelKeys are pod labels whose values in the new pod narrow the selection, e.g. pod-template-hash: only pods
    of one revision are then counted."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """nodeAffinityPolicy is whether nodes outside nodeSelector and nodeAffinity are left out. Defaults to Honor."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """nodeTaintsPolicy is whether nodes with taints that the pod does not tolerate are left out. Defaults to Ignore."""
