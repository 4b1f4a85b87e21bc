"""Defines label selectors, as Kubernetes has them in affinities and topology spread constraints."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import LABEL_KEY, LabelKey, LabelValue


class LabelSelectorRequirement(Model):
    """A condition on one label."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.operator in ['In', 'NotIn']) == (size(self.values) > 0)",
            sentence="engine.template must have labelSelectors whose matchExpressions have values with In and NotIn only",
            holds=lambda r: (r.operator in ("In", "NotIn")) == bool(r.values),
        ),
    )

    key: LabelKey
    """key is the key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """operator is the relation of the label to the values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = ()
    """values are compared with the label by In and NotIn."""


class LabelSelector(Model):
    """Selects objects by their labels. All conditions must hold; without any, every object is selected."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.matchLabels.all(k, size(k) <= 317 && k.matches('{LABEL_KEY}'))",
            sentence="engine.template must have labelSelectors whose matchLabels have keys such as team or example.com/team",
            holds=lambda s: all(re.match(LABEL_KEY, key) is not None for key in s.match_labels),
        ),
    )

    match_labels: dict[str, LabelValue] = Field(default={}, max_length=16)
    """matchLabels are labels that the object must have."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=16)] = ()
    """matchExpressions are conditions on labels of the object."""
