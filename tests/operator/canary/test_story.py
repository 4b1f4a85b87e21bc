"""The canary's state machine over minutes: promoted, rolled back, or held, by what its own pods measure."""

from dataclasses import dataclass, field, replace

import pytest

from sluice_operator.api import Canary
from sluice_operator.canary import CanaryPod, CanaryState, Counts, Shares, Trial, advance, shares

SETTINGS = Canary(weight_percent=20, steps=2, interval_seconds=60)
OLD, NEW = "old", "new"


@dataclass
class Story:
    """A fleet of five. Each pass lasts five seconds, and the canary's pods are ready as soon as they are asked for."""

    settings: Canary | None = SETTINGS
    wanted: str = NEW
    applied: str = OLD
    per_pass: Counts = field(default_factory=lambda: Counts(finished=10, met=10))
    stable_ready: int = 5
    replicas: int = 5
    starts: bool = True
    pod: CanaryPod = field(default_factory=lambda: CanaryPod("c0", ready=False))
    state: CanaryState = field(default_factory=CanaryState)
    now: float = 1_790_000_000.0
    totals: Counts = field(default_factory=Counts)
    is_late: bool = False
    is_rolled_out: bool = False
    lacks_nodes: bool = False
    told: list[str] = field(default_factory=list)

    @property
    def shares(self) -> Shares:
        return shares(self.settings or SETTINGS, self.state, self.trial(), surges=True)

    def trial(self) -> Trial:
        count = 0
        if self.state.has_pods and self.settings is not None:
            count = shares(self.settings, self.state, Trial(NEW, OLD, self.replicas), surges=True).canary
        pods = [replace(self.pod, name=f"c{n}", ready=self.starts) for n in range(count)]
        if pods and self.starts:
            pods[0] = replace(pods[0], totals=self.totals)
        return Trial(
            self.wanted, self.applied, self.replicas, self.stable_ready, tuple(pods), self.is_late, self.is_rolled_out, self.lacks_nodes,
        )  # fmt: skip

    @property
    def phase(self) -> str:
        return self.state.phase

    def run(self, seconds: float) -> CanaryState:
        """Pass after pass."""
        until = self.now + seconds
        while self.now < until:
            if self.starts and self.shares.weight_percent:
                self.totals = self.totals.plus(self.per_pass)
            before = (self.state.phase, self.state.reason)
            self.state = advance(self.settings, self.state, self.trial(), self.now)
            if before != (self.state.phase, self.state.reason):
                self.told.append(self.state.reason)
            self.now += 5.0
        return self.state


def test_a_good_canary_is_promoted_step_by_step() -> None:
    story = Story()
    story.run(5)
    assert (story.phase, story.state.step, story.shares.weight_percent) == ("Progressing", 1, 0)
    story.run(10)
    assert story.shares == Shares(stable=4, canary=1, weight_percent=20)
    story.run(60)
    assert (story.state.step, story.shares.canary) == (2, 2)
    story.run(70)
    assert story.phase == "Promoting"
    assert "% within the SLO" in story.state.message
    story.applied, story.is_rolled_out = NEW, True
    story.run(5)
    assert (story.phase, story.state.has_pods) == ("Promoted", False)
    assert story.told == [
        "CanaryStarted",
        "CanaryServes",
        "CanaryAdvanced",
        "CanaryServes",
        "CanaryPromoting",
        "CanaryPromoted",
    ]
    assert story.shares == Shares(stable=5, canary=0, weight_percent=0)


def test_errors_roll_it_back_within_one_pass_of_the_twentieth_request() -> None:
    story = Story(per_pass=Counts(finished=9, met=9, failed=1))
    story.run(15)
    assert story.phase == "Progressing"  # 10 requests
    story.run(5)
    assert (story.phase, story.state.reason) == ("RolledBack", "ErrorRate")
    assert "2 of 20 requests" in story.state.message
    story.run(3600)
    assert story.phase == "RolledBack"
    assert story.state.holds_stable


def test_a_missed_slo_rolls_it_back_at_the_end_of_the_step() -> None:
    story = Story(per_pass=Counts(finished=10, met=9, missed=1))
    story.run(60)
    assert story.phase == "Progressing"
    story.run(15)
    assert (story.phase, story.state.reason) == ("RolledBack", "SLOMissed")
    assert "90.0 %" in story.state.message


def test_too_few_requests_hold_the_step_and_are_said() -> None:
    story = Story(per_pass=Counts())
    story.run(3600)
    assert (story.phase, story.state.step, story.state.reason) == ("Progressing", 1, "TooFewRequests")
    assert story.shares.weight_percent == 20
    story.per_pass = Counts(finished=10, met=10)
    story.run(10)
    assert story.state.step == 2


@pytest.mark.parametrize("minutes", range(6))
def test_a_restart_loses_nothing(minutes: int) -> None:
    """The state is all there is: a story cut at any minute goes on."""
    story, whole = Story(), Story()
    whole.run(600)
    story.run(60 * minutes)
    again = replace(story, told=[])
    again.run(600 - 60 * minutes)
    assert again.state == whole.state


def test_pods_that_do_not_start_roll_it_back_after_a_minute() -> None:
    story = Story(starts=False, pod=CanaryPod("c", False, problem=("ImagePullFailed", "no such image")))
    story.run(60)
    assert story.phase == "Progressing"
    assert story.shares == Shares(stable=5, canary=1, weight_percent=0)
    story.run(10)
    assert (story.phase, story.state.reason) == ("RolledBack", "ImagePullFailed")
    assert "no such image" in story.state.message


def test_a_problem_that_passes_does_not_count() -> None:
    story = Story(starts=False)
    for _ in range(5):
        story.pod = CanaryPod("c", False, problem=("EngineCrashed", "exit code 1"))
        story.run(40)
        story.pod = CanaryPod("c", False)
        story.run(20)
    assert story.phase == "Progressing"


def test_pods_that_make_no_progress_roll_it_back_but_not_while_they_load() -> None:
    story = Story(starts=False, is_late=True, pod=CanaryPod("c", False, loads=True))
    story.run(600)
    assert story.phase == "Progressing"
    story.pod = CanaryPod("c", False)
    story.run(5)
    assert story.state.reason == "ProgressDeadlineExceeded"


def test_without_a_node_it_waits_and_says_so() -> None:
    problem = ("Unschedulable", "0/3 nodes are available.")
    story = Story(starts=False, is_late=True, pod=CanaryPod("c", False, problem=problem))
    story.run(600)
    assert (story.phase, story.state.reason) == ("Progressing", "CanaryUnschedulable")
    assert "maxSurge 0" in story.state.message
    story.starts = True
    story.run(10)
    assert story.state.reason == "CanaryServes"


def test_without_a_ready_stable_pod_a_change_applies_at_once() -> None:
    story = Story(stable_ready=0)
    story.run(10)
    assert not story.state.holds_stable
    assert not story.state.has_pods
    first = Story(applied="")
    first.run(10)
    assert first.state == CanaryState()


def test_a_spec_that_is_changed_back_ends_the_canary_and_another_one_begins_again() -> None:
    story = Story()
    story.run(100)
    assert story.state.step == 2
    story.wanted = "newer"
    story.run(5)
    assert (story.phase, story.state.step, story.state.revision) == ("Progressing", 1, "newer")
    story.wanted = OLD
    story.run(5)
    assert (story.phase, story.state.has_pods, story.state.exists) == ("", False, True)


def test_a_rolled_back_spec_is_tried_again_only_after_a_change() -> None:
    story = Story(per_pass=Counts(failed=10))
    story.run(60)
    assert story.phase == "RolledBack"
    story.wanted, story.per_pass, story.totals = "fixed", Counts(finished=10, met=10), Counts()  # new pods
    story.run(15)
    assert (story.phase, story.state.revision) == ("Progressing", "fixed")


def test_without_the_setting_the_change_applies_at_once() -> None:
    story = Story()
    story.run(100)
    story.settings = None
    story.run(5)
    assert (story.phase, story.state.exists) == ("", True)


def test_promotion_without_a_spare_node_lets_the_canary_make_room() -> None:
    story = Story(state=CanaryState("Promoting", NEW, 2, exists=True), applied=NEW)
    story.run(60)
    assert story.phase == "Promoting"
    assert story.shares == Shares(stable=5, canary=2, weight_percent=40)
    story.lacks_nodes = True
    story.run(5)
    assert story.phase == "Promoted"


def test_a_clock_that_was_set_back_only_prolongs_the_step() -> None:
    story = Story()
    story.run(30)
    story.now -= 86_400
    story.run(60)
    assert (story.phase, story.state.step) == ("Progressing", 1)
    story.run(15)
    assert story.state.step == 2


def test_an_engine_that_restarts_counts_from_zero() -> None:
    assert Counts(finished=3).since(Counts(finished=10, failed=1)) == Counts(finished=3)
    assert Counts(finished=12, failed=1).since(Counts(finished=10, failed=1)) == Counts(finished=2)


@pytest.mark.parametrize(
    ("replicas", "ready", "surges", "expected"),
    [
        (1, 0, True, (1, 1)),  # one stable pod always stays
        (1, 1, False, (1, 1)),
        (4, 0, True, (4, 1)),  # the canary's pods start first
        (4, 1, True, (3, 1)),
        (4, 0, False, (3, 1)),  # no accelerator is spare
        (10, 2, True, (8, 2)),
        (0, 0, True, (0, 0)),
    ],
)
def test_the_replicas_are_divided(replicas: int, ready: int, surges: bool, expected: tuple[int, int]) -> None:
    pods = tuple(CanaryPod(f"c{n}", ready=True) for n in range(ready))
    state = CanaryState("Progressing", NEW, 1, since=0.0)
    found = shares(SETTINGS, state, Trial(NEW, OLD, replicas, pods=pods), surges=surges)
    assert (found.stable, found.canary) == expected
