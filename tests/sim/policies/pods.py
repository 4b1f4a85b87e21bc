"""Pods for tests of laws: the observation of one call, built from a few numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sluice_operator.autoscaler.values import EngineSample, Observed, PodView
from tests.operator.autoscaler.fleet import MODEL, Engine

EMPTY: EngineSample = Engine().sample()


def sample(**values: Any) -> EngineSample:
    """An idle engine's scrape with some of its numbers replaced."""
    return replace(EMPTY, **values)


def served(requests: float) -> EngineSample:
    """An engine with a model that so many requests came to and left, of 60 tokens that got 40 each."""
    return sample(
        step_model=MODEL,
        arrived_total=requests,
        finished_total=requests,
        prompt_tokens_total=60 * requests,
        generated_tokens_total=40 * requests,
    )


def ready(samples: Sequence[EngineSample | None], at: float = 0.0) -> tuple[PodView, ...]:
    """Ready pods; None is one that does not answer."""
    return tuple(
        PodView(f"pod-{i}", "ready", float(i), one, None if one is None else at) for i, one in enumerate(samples)
    )


def fleet(samples: Sequence[EngineSample | None], at: float = 0.0, loading: int = 0) -> Observed:
    """A Deployment of these pods, with some more that load."""
    pods = ready(samples, at) + tuple(PodView(f"new-{i}", "loading", at) for i in range(loading))
    return Observed(pods, len(pods))
