"""Replicas that are ordered and do not start: bounds are tight for a cold start and no longer."""

from dataclasses import dataclass, replace

import pytest

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.values import Decision, Observed
from tests.operator.autoscaler.fleet import Story

HALF, OVER = 1.25, 4.0


@dataclass
class Stuck(Story):
    """No node takes a new pod while there is no room; a quota refuses the pod itself."""

    room: bool = False
    quota: bool = False

    def observed(self) -> Observed:
        whole = super().observed()
        if self.room:
            return whole
        old = tuple(pod for pod in whole.pods if pod.phase == "ready")
        new = tuple(replace(pod, phase="unschedulable") for pod in whole.pods if pod.phase == "loading")
        return replace(whole, pods=old if self.quota else (*old, *new))

    def most(self) -> int:
        """The upper bound that the first engine has now."""
        return dict(self.decisions[-1][1].bounds)["chat-1"].concurrency_max


def wanting(quota: bool) -> Stuck:
    """An overloaded replica; another one is ordered and does not start."""
    story = Stuck(cold_start=1e9, quota=quota)
    story.run(60, HALF)
    while story.replicas == 1:
        story.run(5, OVER)
    return story


@pytest.mark.parametrize("quota", [False, True], ids=["no node", "no quota"])
def test_bounds_are_relaxed_once_no_replica_has_started_for_a_cold_start(quota: bool) -> None:
    story = wanting(quota)
    assert story.most() < 20
    story.run(LAW.usual_cold_start_seconds - 5, OVER)
    assert story.most() < 20
    later: list[Decision] = story.run(600, OVER)
    assert {dict(d.bounds)["chat-1"].concurrency_max for d in later[2:]} == {64}
    assert min(d.desired for d in later) > 1  # more replicas are still desired


def test_bounds_are_tight_again_once_a_node_takes_the_pod() -> None:
    story = wanting(quota=False)
    story.run(300, OVER)
    story.room = True
    story.run(5, OVER)
    assert story.most() < 20
