"""Defines label selectors, as Kubernetes has them in affinities and topology spread constraints.

Keys are checked by one rule of the type that has the selectors: the CRD would otherwise repeat their pattern 20 times.
"""

import re
from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from sluice import contract
from sluice_operator.api.base import Model, Rule
from sluice_operator.api.patterns import LABEL_KEY, MAX_LABEL_KEY, LabelValue
from sluice_operator.api.template.cel import cel_list

Key = Annotated[str, Field(max_length=MAX_LABEL_KEY)]
Keys = Annotated[tuple[Key, ...], Field(max_length=8)]

_OWN_KEYS: Final = (contract.LABEL_NAME, contract.LABEL_INSTANCE)  # of the selector that stands for a missing one


class LabelSelectorRequirement(Model):
    """A condition on one label."""

    key: Key
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Its relation to the values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=32)] = ()
    """For In and NotIn."""

    @property
    def has_its_values(self) -> bool:
        """Return whether it has values exactly where its operator compares with them."""
        return (self.operator in ("In", "NotIn")) == bool(self.values)


class LabelSelector(Model):
    """Selects objects by their labels. All conditions must hold; without any, every object is selected."""

    match_labels: dict[str, LabelValue] = Field(default={}, max_length=16)
    """matchLabels are labels of the object."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Field(max_length=16)] = ()
    """matchExpressions are conditions on its labels."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of all labels that it reads."""
        return (*self.match_labels, *(each.key for each in self.match_expressions))


def selector_rules(place: str, *, selectors: tuple[str, ...], lists: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules of a type with topologyKey, labelSelector, `selectors` (it among them) and `lists` of label keys.

    In CEL, an expression whose values do not fit its operator counts as an empty key, which no pattern of keys matches.
    """
    listed = " + ".join(f"self.{to_camel(name)}" for name in lists)
    selected = " + ".join(_keys_of(f"self.{to_camel(name)}") for name in selectors)
    apart = "!self.matchLabelKeys.exists(k, k in self.mismatchLabelKeys) && " if len(lists) > 1 else ""
    return (
        Rule(
            cel=f"([self.topologyKey] + {listed} + {selected}).all(k, size(k) <= {MAX_LABEL_KEY} && k.matches('{LABEL_KEY}'))",
            sentence=f"engine.template.{place} must have label keys such as team or example.com/team, and values with In "
            "and NotIn only",
            holds=lambda t: _has_good_keys(
                (t.topology_key, *(key for name in lists for key in getattr(t, name))),
                [getattr(t, name) for name in selectors if getattr(t, name) is not None],
            ),
        ),
        Rule(
            cel=f"{apart}!({listed}).exists(k, has(self.labelSelector) ? k in self.labelSelector.matchLabels || "
            f"self.labelSelector.matchExpressions.exists(e, e.key == k) : k in {cel_list(_OWN_KEYS)})",
            sentence=f"engine.template.{place} must have each label once, in {', '.join(map(to_camel, lists))} or "
            f"labelSelector (by default {', '.join(_OWN_KEYS)})",
            holds=lambda t: _are_apart(t.label_selector, [set(getattr(t, name)) for name in lists]),
        ),
    )


def _has_good_keys(keys: tuple[str, ...], selectors: list[LabelSelector]) -> bool:
    every = (*keys, *(key for each in selectors for key in each.keys))
    are_keys = all(len(key) <= MAX_LABEL_KEY and re.match(LABEL_KEY, key) is not None for key in every)
    return are_keys and all(each.has_its_values for selector in selectors for each in selector.match_expressions)


def _are_apart(selector: LabelSelector | None, lists: list[set[str]]) -> bool:
    sets = [*lists, set(_OWN_KEYS if selector is None else selector.keys)]
    return sum(map(len, sets)) == len(set().union(*sets))


def _keys_of(selector: str) -> str:
    """The keys of a selector that may be missing, as CEL."""
    key = "(e.operator in ['In', 'NotIn']) == (size(e.values) > 0) ? e.key : ''"
    return f"(has({selector}) ? {selector}.matchLabels.map(k, k) + {selector}.matchExpressions.map(e, {key}) : [])"
