"""The variants of the robustness score: each changes one condition that an operator cannot control."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from sluice_sim.cluster.scenario import Settings

Change = Callable[[Settings], Settings]


def _cold(seconds: float) -> Change:
    return lambda plain: replace(plain, cold_start=seconds, cold_start_spread=0.3)


def _late(seconds: float) -> Change:
    return lambda plain: replace(plain, metrics_delay=seconds, metrics_loss=0.02)


def _wrong(error: float) -> Change:
    return lambda plain: replace(plain, profile_error=error)


def _seeded(seed: int) -> Change:
    return lambda plain: replace(plain, seed=seed, cold_start_spread=0.3)


VARIANTS: Final[Mapping[str, Change]] = MappingProxyType(
    {
        "plain": lambda plain: plain,
        "cold start 30 s": _cold(30.0),
        "cold start 120 s": _cold(120.0),
        "cold start 300 s": _cold(300.0),
        "1 % of pods die": lambda plain: replace(plain, pod_failures=0.01),
        "metrics 15 s late": _late(15.0),
        "metrics 30 s late": _late(30.0),
        "metrics 60 s late": _late(60.0),
        "steps 20 % slower": _wrong(0.2),
        "steps 20 % faster": _wrong(-0.2),
        "seed 1": _seeded(1),
        "seed 2": _seeded(2),
        "seed 3": _seeded(3),
    }
)
