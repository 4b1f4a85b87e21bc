"""The choice of a pod template, rule by rule and as stories; in each story the second look is the same as the first."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice_operator.api import Rollout
from sluice_operator.cluster.client import Object
from sluice_operator.revisions.choose import choose
from sluice_operator.revisions.values import Asked, Choice, Live, Record, image_of

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
TIMEOUT = ("ImagePullFailed", "engine:bad: not found.")
AUTO, MANUAL = Rollout(rollback="Auto"), Rollout()
POLICIES = {name: Rollout.model_validate(given) for name, given in {
    "OnChange": {},
    "Manual": {"upgradePolicy": "Manual"},
    "Window": {"upgradePolicy": "Window", "upgradeWindow": {"cron": "0 2 * * *"}},
}.items()}  # fmt: skip


def asked(spec: str = "A", image: str = "engine:1", *, renderer: str = "r1", **changes: Any) -> Asked:
    """A spec and an operator, whose renderer has a version of its own."""

    def render(default: str) -> Object:
        container = {"name": "engine", "image": default, "args": [spec, renderer]}
        return {
            "spec": {"containers": [container], "volumes": [{"name": "admin-token", "secret": {"secretName": "s1"}}]}
        }

    return replace(Asked(spec=spec, image=image, has_own_image=False, secret="s1", render=render), **changes)


@dataclass
class Fleet:
    """One resource over passes: each look applies what was chosen."""

    rollout: Rollout = MANUAL
    record: Record | None = None
    now: datetime = NOW

    def look(self, what: Asked, *, ready: bool = False, late: bool = False, window: bool = False) -> Choice:
        live = Live(self.now, ready, TIMEOUT if late else None)
        choice = choose(self.record, what, live, self.rollout, window_is_open=window)
        again = choose(choice.record, what, live, self.rollout, window_is_open=window)
        assert (again.pod, again.failure) == (choice.pod, choice.failure)
        self.record = choice.record
        self.now += timedelta(seconds=601)
        return choice

    def serving(self, what: Asked) -> Choice:
        self.look(what)
        return self.look(what, ready=True)


def runs(choice: Choice) -> tuple[str, str]:
    """The spec and the image of the pods."""
    return choice.pod["spec"]["containers"][0]["args"][0], image_of(choice.pod)


def test_a_new_resource_runs_what_is_rendered_and_its_image_is_pinned() -> None:
    choice = Fleet().look(asked())
    assert (runs(choice), choice.record.image, choice.is_kept) == (("A", "engine:1"), "engine:1", False)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("before", "after"), [("", "nvidia.com/gpu"), ("nvidia.com/gpu", "")], ids=["to", "from"])
def test_a_change_of_the_accelerator_takes_its_image_whatever_the_policy_is(
    policy: str, before: str, after: str
) -> None:
    def on(accelerator: str, image: str, spec: str) -> Asked:
        device = {"resources": {"limits": {accelerator: "1"}}} if accelerator else {}
        args = [spec, "--device=cuda" if accelerator else "--device=cpu"]

        def render(default: str) -> Object:
            return {"spec": {"containers": [{"name": "engine", "image": default, "args": args, **device}]}}

        return asked(spec, image, render=render, accelerator=accelerator)

    fleet = Fleet(POLICIES[policy])
    fleet.serving(on(before, "old:1", "A"))
    assert runs(fleet.look(on(after, "new:1", "B"))) == ("B", "new:1")
    fleet.look(on(after, "new:1", "B"), ready=True)
    kept = policy != "OnChange"
    assert runs(fleet.look(on(after, "new:2", "C"))) == ("C", "new:1" if kept else "new:2")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("newer", [{"image": "engine:2"}, {"renderer": "r2"}], ids=["image", "rendering"])
def test_a_newer_operator_moves_no_pod_and_is_offered(policy: str, newer: dict[str, str]) -> None:
    fleet = Fleet(POLICIES[policy])
    before = fleet.serving(asked())
    choice = fleet.look(asked(**newer), ready=True)
    assert choice.pod == before.pod and choice.is_kept
    assert choice.pending is not None and choice.pending.changes_image == ("image" in newer)


@pytest.mark.parametrize(
    ("policy", "image"), [("OnChange", "engine:2"), ("Window", "engine:1"), ("Manual", "engine:1")]
)
def test_a_change_of_the_spec_takes_the_newer_image_on_change_only(policy: str, image: str) -> None:
    fleet = Fleet(POLICIES[policy])
    fleet.serving(asked())
    assert runs(fleet.look(asked("B", "engine:2"))) == ("B", image)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_annotation_takes_exactly_the_upgrade_that_it_names(policy: str) -> None:
    fleet = Fleet(POLICIES[policy])
    fleet.serving(asked())
    offered = fleet.look(asked(image="engine:2"), ready=True).pending
    assert offered is not None
    for_another = asked(image="engine:3", approved=offered.template)
    assert runs(fleet.look(for_another, ready=True)) == ("A", "engine:1")
    choice = fleet.look(asked(image="engine:2", approved=offered.template), ready=True)
    assert (runs(choice), choice.pending, choice.needs_slot) == (("A", "engine:2"), None, False)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_open_window_moves_the_fleets_of_its_policy(policy: str) -> None:
    fleet = Fleet(POLICIES[policy])
    fleet.serving(asked())
    choice = fleet.look(asked(image="engine:2"), ready=True, window=True)
    assert (choice.needs_slot, image_of(choice.pod)) == (
        policy == "Window",
        f"engine:{2 if policy == 'Window' else 1}",
    )


def test_a_move_that_the_window_has_begun_goes_on_after_it() -> None:
    fleet = Fleet(POLICIES["Window"])
    fleet.serving(asked())
    fleet.look(asked(image="engine:2"), ready=True, window=True)
    after = fleet.look(asked(image="engine:2"))
    assert (runs(after), after.needs_slot, after.record.applied.is_upgrade) == (("A", "engine:2"), False, True)


def test_a_resource_whose_first_pods_never_served_takes_the_newer_image_at_once() -> None:
    fleet = Fleet(POLICIES["Manual"])
    fleet.look(asked(image="engine:bad"))
    assert runs(fleet.look(asked(image="engine:2"))) == ("A", "engine:2")


def test_an_own_image_follows_the_spec_alone() -> None:
    fleet = Fleet()
    mine = asked(image="engine:1", has_own_image=True)
    fleet.serving(mine)
    same_pods = replace(mine, image="engine:2", render=lambda _: mine.render("engine:1"))
    choice = fleet.look(same_pods, ready=True)
    assert (choice.pending, choice.record.image) == (None, "engine:2")


def test_manual_leaves_a_failed_spec_in_place_and_keeps_the_way_back() -> None:
    fleet = Fleet(MANUAL)
    good = fleet.serving(asked())
    fleet.look(asked("B"))
    choice = fleet.look(asked("B"), late=True)
    assert (runs(choice)[0], choice.failure) == ("B", None)
    assert fleet.look(asked("A")).pod == good.pod


def test_auto_goes_back_and_tries_again_only_another_spec() -> None:
    fleet = Fleet(AUTO)
    good = fleet.serving(asked())
    fleet.look(asked("B"))
    choice = fleet.look(asked("B"), late=True)
    assert choice.pod == good.pod
    assert choice.failure is not None and (choice.failure.reason, choice.failure.message) == TIMEOUT
    for newer in ("engine:1", "engine:2"):  # not even another image of the operator
        assert fleet.look(asked("B", newer), ready=True).pod == good.pod
    assert runs(fleet.look(asked("C"))) == ("C", "engine:1")
    assert fleet.record is not None and fleet.record.failed is None


@pytest.mark.parametrize("since", ["", "soon", "2026-11-25T12:00:00", "2026-11-25T12:00:00+99:99"])
def test_auto_goes_back_from_a_revision_whose_begin_cannot_be_read(since: str) -> None:
    fleet = Fleet(AUTO)
    good = fleet.serving(asked())
    fleet.look(asked("B"))
    assert fleet.record is not None
    fleet.record = replace(fleet.record, applied=replace(fleet.record.applied, since=since))
    assert fleet.look(asked("B"), late=True).pod == good.pod


def test_a_failed_spec_is_tried_again_after_another_one_was_applied() -> None:
    fleet = Fleet(AUTO)
    fleet.serving(asked())
    fleet.look(asked("B"))
    fleet.look(asked("B"), late=True)
    assert fleet.look(asked("A"), ready=True).failure is None
    assert runs(fleet.look(asked("B")))[0] == "B"


def test_the_timeout_of_an_earlier_template_does_not_take_a_new_one_back() -> None:
    fleet = Fleet(AUTO)
    fleet.serving(asked())
    fleet.look(asked("B"))
    fleet.look(asked("C"))
    fleet.now -= timedelta(seconds=600)
    assert runs(fleet.look(asked("C"), late=True))[0] == "C"


def test_without_a_revision_that_was_ready_there_is_no_way_back() -> None:
    fleet = Fleet(AUTO)
    fleet.look(asked())
    choice = fleet.look(asked(), late=True)
    assert (runs(choice)[0], choice.failure, choice.record.good) == ("A", None, None)


def test_specs_that_never_served_do_not_replace_the_one_to_go_back_to() -> None:
    fleet = Fleet(AUTO)
    good = fleet.serving(asked())
    for spec in "BCDEFG":
        fleet.look(asked(spec))
    assert fleet.look(asked("G"), late=True).pod == good.pod


def test_a_ready_revision_is_not_taken_back_later() -> None:
    fleet = Fleet(AUTO)
    fleet.serving(asked())
    fleet.serving(asked("B"))
    assert runs(fleet.look(asked("B"), late=True))[0] == "B"


def test_a_settled_record_has_no_trace_of_what_was_before() -> None:
    fleet, fresh = Fleet(AUTO), Fleet(AUTO)
    for spec in "AB":
        fleet.serving(asked(spec))
    fleet.look(asked("C"))
    fleet.serving(asked("B"))
    fresh.now += timedelta(days=1)
    fresh.serving(asked("B"))
    assert fleet.record == fresh.record


def test_the_earlier_spec_gets_its_earlier_pods_whatever_is_rendered_now() -> None:
    fleet = Fleet()
    good = fleet.serving(asked())
    fleet.look(asked("B", "engine:2", renderer="r2"))
    assert fleet.look(asked("A", "engine:2", renderer="r2")).pod == good.pod


def test_an_upgrade_that_fails_is_taken_back_and_not_tried_again() -> None:
    fleet = Fleet(
        Rollout.model_validate({"rollback": "Auto", "upgradePolicy": "Window", "upgradeWindow": {"cron": "* * * * *"}})
    )
    good = fleet.serving(asked())
    fleet.look(asked(image="engine:bad"), ready=True, window=True)
    back = fleet.look(asked(image="engine:bad"), late=True, window=True)
    assert (back.pod, back.failure) == (good.pod, None)  # the spec's own pods serve: it is not the spec that failed
    assert back.pending is not None and back.pending.failure is not None
    still = fleet.look(asked(image="engine:bad", approved=back.pending.template), ready=True, window=True)
    assert still.pod == good.pod
    assert runs(fleet.look(asked(image="engine:3"), ready=True, window=True)) == ("A", "engine:3")
