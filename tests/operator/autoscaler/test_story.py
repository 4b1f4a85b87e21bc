"""decide() over minutes: a deployment's day, compressed. One engine serves 3.7 requests per second here."""

import math
from dataclasses import replace

import pytest

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Observed, PodView
from tests.operator.autoscaler.fleet import MEMORY, Engine, Story, spec

HALF, OVER, QUIET = 1.25, 4.0, 0.3


@pytest.mark.parametrize("interval", [1.0, 5.0])
def test_half_a_replica_of_load_keeps_one(interval: float) -> None:
    story = Story(interval=interval)
    assert {d.desired for d in story.run(300, HALF)} == {1}


@pytest.mark.parametrize("interval", [1.0, 5.0])
def test_load_that_rises_and_falls_scales_out_and_in_one_at_a_time_with_reasons(interval: float) -> None:
    story = Story(interval=interval)
    story.run(60, HALF)
    rising = story.run(60, OVER)
    assert story.replicas == 2
    up = next(reason for d in rising for reason in d.reasons if reason.dial == "replicas")
    assert (up.before, up.after) == (1, 2)
    assert up.sentence.startswith("1 → 2 replicas: ")
    assert "2 replicas would have served" in up.sentence and ", 1 only " in up.sentence
    story.run(120, OVER)
    assert story.replicas == 2
    falling = story.run(1100, QUIET)
    assert story.replicas == 1
    down = next(reason for d in falling for reason in d.reasons if reason.dial == "replicas")
    assert (down.before, down.after) == (2, 1)
    assert down.sentence.startswith("2 → 1 replica: fewer are enough. 1 replica would have served ")
    assert "No more were needed for 60 s." in down.sentence
    assert len(story.sentences()) == 2


def test_an_overload_scales_out_to_the_maximum_and_no_further() -> None:
    story = Story()
    story.run(60, HALF)
    story.run(200, 100.0)
    assert story.replicas == 3
    assert "maxReplicas is 3" in story.sentences()[-1]


def test_a_short_burst_changes_no_count() -> None:
    story = Story()
    story.run(60, HALF)
    story.run(5, 2 * HALF)
    story.run(60, HALF)
    assert story.replicas == 1


@pytest.mark.parametrize("window", [60, 300])
def test_scale_in_waits_for_a_whole_window_after_the_last_need(window: int) -> None:
    story = Story(replicas=2, spec=spec(scaling={"scaleDownStabilizationSeconds": window}))
    story.run(120, OVER)
    began = story.now
    story.run(1400, QUIET)
    when = next(at for at, d in story.decisions if d.replicas == 1)
    # Some of the load's last requests must be out of the memory before one replica is enough.
    assert window + MEMORY - 60 <= when - began <= window + MEMORY + 30


def test_after_a_restart_no_scale_in_until_a_whole_window_was_observed() -> None:
    story = Story(replicas=3)
    story.state = AutoscalerState()
    began = story.now
    story.run(300, QUIET)
    whens = [at for at, d in story.decisions if any(r.dial == "replicas" for r in d.reasons)]
    assert whens[0] - began >= 60
    assert whens[1] - whens[0] >= 30


def test_an_idle_fleet_shrinks_to_the_minimum() -> None:
    story = Story(spec=spec(scaling={"minReplicas": 1, "maxReplicas": 4}), replicas=4)
    story.run(600, 0.0)
    assert story.replicas == 1
    assert "idle" in story.sentences()[-1]


def test_a_loading_pod_is_not_removed_when_the_load_falls() -> None:
    story = Story(cold_start=200)
    story.run(60, HALF)
    story.run(60, OVER)
    assert len(story.loading) == 1
    story.run(120, 0.0)
    assert len(story.loading) == 1


def test_bounds_are_tight_while_replicas_start_and_relaxed_once_they_are_ready() -> None:
    story = Story(cold_start=60)
    story.run(60, HALF)
    before = dict(story.decisions[-1][1].bounds)["chat-1"]
    story.run(45, OVER)
    during = dict(story.decisions[-1][1].bounds)["chat-1"]
    story.run(120, OVER)
    after = dict(story.decisions[-1][1].bounds)["chat-1"]
    assert before.concurrency_max == after.concurrency_max == 64
    assert during.concurrency_max < 20
    assert {b.ttl for b in (before, during, after)} == {30.0}


def test_a_new_replica_gets_a_slow_start_and_one_from_before_the_first_observation_does_not() -> None:
    story = Story(replicas=2)
    story.run(60, OVER)
    pods = {name: story._view(name, "ready") for name in story.engines}
    for age, share in ((0.0, 0.5), (3.0, 0.6), (5.0, 1.0)):
        fresh = replace(pods["chat-2"], since=story.now - age)
        observed = Observed((pods["chat-1"], fresh), replicas=2)
        found = dict(decide(story.spec, observed, story.state, story.now)[0].bounds)
        assert found["chat-1"].concurrency_max == 64
        assert (found["chat-2"].concurrency_max == 64) == (share == 1.0)
        assert found["chat-2"].concurrency_max >= math.ceil(share * 10)


def test_the_queue_bound_follows_the_limit_in_force() -> None:
    story = Story()
    story.run(60, HALF)
    story.engines["chat-1"].limit = 13
    wide = dict(story.decide().bounds)["chat-1"].max_queue
    story.engines["chat-1"].limit = 5
    story.now += 5
    narrow = dict(story.decide().bounds)["chat-1"].max_queue
    assert narrow < wide


def test_a_limit_that_moved_by_a_fifth_is_reported_with_its_numbers_once_it_affects_requests() -> None:
    story = Story()
    story.run(60, HALF)
    story.engines["chat-1"].limit = 9
    story.engines["chat-1"].inside = 2
    story.now += 5
    assert story.decide().reasons == ()
    story.engines["chat-1"].inside = 8
    story.now += 5
    said = story.decide().reasons
    assert [reason.dial for reason in said] == ["admission"]
    assert said[0].sentence.startswith("13 → 9 requests at once per replica: ITL nears its target")


def test_kv_memory_can_bind_instead_of_latency() -> None:
    story = Story(spec=spec(scaling={"targetKVOccupancyPercent": 50}))
    story.engines["chat-1"] = Engine(kv_blocks=30)
    story.run(60, 0.5)
    assert story.replicas == 1
    story.run(60, 2.0)
    assert story.replicas == 2
    assert story.sentences()[0].startswith("1 → 2 replicas: KV cache binds. Running requests hold 0.")
    assert "50 % (targetKVOccupancyPercent): up to 0.5 1 would do." in story.sentences()[0]


def test_the_emptiest_pod_is_removed_first() -> None:
    story = Story(replicas=3)
    story.run(50, QUIET)
    for index, engine in enumerate(story.engines.values()):
        engine.inside = (4.0, 0.0, 8.0)[index]
    for _ in range(20):
        story.now += 5
        decision = story.decide()
        if decision.scale_in_candidates:
            break
    assert decision.scale_in_candidates == ("chat-2",)


def test_an_unschedulable_pod_neither_blocks_nor_outlives_a_scale_in() -> None:
    story = Story(replicas=1)
    story.replicas = 2
    stuck = PodView("chat-9", "unschedulable", 0.0, message="0/3 nodes are available")
    for _ in range(40):
        story.engines["chat-1"].pass_time(QUIET, 5)
        story.now += 5
        story.heard["chat-1"] = (story.engines["chat-1"].sample(), story.now)
        observed = Observed(pods=(*story.observed().pods, stuck), replicas=2)
        decision, story.state = decide(story.spec, observed, story.state, story.now)
        if decision.replicas == 1:
            break
    assert (decision.replicas, decision.scale_in_candidates) == (1, ("chat-9",))


def test_after_a_gap_in_observation_no_scale_in_for_a_whole_window() -> None:
    story = Story(replicas=3)
    story.run(120, 2.5 * OVER)  # all three are needed
    assert story.replicas == 3
    story.now += 3600  # paused, or every pass failed
    began = story.now
    story.run(300, QUIET)
    whens = [at for at, d in story.decisions if at >= began and d.replicas is not None and d.replicas < 3]
    assert whens and whens[0] - began >= 60


def test_after_a_change_back_to_auto_no_scale_in_for_a_whole_window() -> None:
    story = Story(spec=spec(scaling={"mode": "External"}, replicas=3), replicas=3)
    story.run(300, QUIET)
    story.spec = spec(replicas=3)
    began = story.now
    story.run(300, QUIET)
    whens = [at for at, d in story.decisions if at >= began and d.replicas is not None and d.replicas < 3]
    assert whens and whens[0] - began >= 60
