"""Warm prefix caches change which replica scale-in removes, and how long it waits."""

from dataclasses import replace

import pytest

from tests.operator.autoscaler.fleet import MODEL, Story

OVER, QUIET = 4.0, 0.3
WINDOW = 60.0  # of the stories' spec


def left_first(story: Story) -> str:
    """The pod that the first scale-in removes, without further load."""
    for _ in range(60):
        story.now += 5
        scale_in_candidates = story.decide().scale_in_candidates
        if scale_in_candidates:
            return scale_in_candidates[0]
    raise AssertionError("no pod was removed")


def warmed(*shares: float) -> Story:
    """Three replicas whose caches saved these shares for two minutes, under a load that needs all three."""
    story = Story(replicas=3)
    for engine, share in zip(story.engines.values(), shares, strict=True):
        engine.saved = share
    story.run(120, 2.5 * OVER)
    assert story.replicas == 3
    return story


def occupy(story: Story, *inside: float) -> None:
    """Sets the requests in flight of each replica; none waits."""
    for engine, count in zip(story.engines.values(), inside, strict=True):
        engine.inside = count


@pytest.mark.parametrize(
    ("saved", "inside", "leaves"),
    [
        ((0.6, 0.1, 0.6), (1.0, 3.0, 2.0), "chat-2"),  # of busy pods the coldest, not the emptiest
        ((0.0, 0.6, 0.0), (2.0, 0.0, 2.0), "chat-2"),  # an idle one before a busy one, however warm
        ((0.0, 0.0, 0.0), (3.0, 2.0, 1.0), "chat-3"),  # where nothing is shared, the emptiest
    ],
)
def test_scale_in_removes_the_idle_the_coldest_then_the_emptiest(
    saved: tuple[float, ...], inside: tuple[float, ...], leaves: str
) -> None:
    story = warmed(*saved)
    occupy(story, *inside)
    assert left_first(story) == leaves


def test_cache_warmth_is_what_the_cache_saved_recently() -> None:
    story = warmed(0.9, 0.05, 0.05)
    story.engines["chat-1"].saved = 0.0  # its conversations end
    story.run(600, 2.5 * OVER)
    ever = {name: engine.totals["cached_prompt_tokens_total"] for name, engine in story.engines.items()}
    assert max(ever, key=lambda name: ever[name]) == "chat-1"
    occupy(story, 2.0, 2.0, 2.0)
    assert left_first(story) == "chat-1"


def test_an_engine_that_restarted_has_a_cold_cache() -> None:
    story = warmed(0.6, 0.6, 0.5)
    story.engines["chat-1"].totals = {}
    story.engines["chat-1"].saved = 0.2
    story.run(15, 2.5 * OVER)
    occupy(story, 2.0, 2.0, 2.0)
    assert left_first(story) == "chat-1"


def seconds_said_at(story: Story, moved: float) -> float:
    """The scale-in window, in seconds, by the sentence of that decision."""
    reasons = next(d.reasons for at, d in story.decisions if at == moved)
    return float(next(r.sentence for r in reasons if r.dial == "replicas").split("needed for ")[1].split(" s")[0])


@pytest.mark.parametrize(
    ("share", "prefill", "least", "most"),
    [
        (0.0, 0.0002, WINDOW, WINDOW),  # nothing is lost with a cache that spares nothing
        (0.5, 0.00001, WINDOW, WINDOW + 2.0),  # nor with one that spares next to no work, however cold the pools are
        (0.5, 0.0002, WINDOW + 20.0, WINDOW + 30.0),  # a cold one holds 3 % less, for some minutes, at going and coming
        (0.5, 0.02, 3.0 * WINDOW, 3.0 * WINDOW),  # half of all work, and the bound
    ],
)
def test_the_scale_in_window_is_longer_where_caches_save_work(
    share: float, prefill: float, least: float, most: float
) -> None:
    story = warmed(share, share, share)
    for engine in story.engines.values():
        engine.model = replace(MODEL, prefill_token=prefill)
    before, began = story.replicas, story.now
    assert before == 3
    story.run(900, QUIET)
    moved = [at for at, d in story.decisions if at > began and d.replicas == 1]
    assert moved
    assert least <= seconds_said_at(story, moved[0]) <= most
    assert moved[0] - began >= least


def quiet_until_named(story: Story) -> str:
    """The first next scale-in candidate under a load that needs fewer replicas; caches save half of all work."""
    for engine in story.engines.values():
        engine.model = replace(MODEL, prefill_token=0.02)
    for _ in range(60):
        name = story.run(5, QUIET)[-1].next_scale_in_candidate
        if name is not None:
            return name
    raise AssertionError("no candidate was named")


def test_the_next_scale_in_candidate_is_named_early_and_stays() -> None:
    story = warmed(0.5, 0.2, 0.5)
    assert quiet_until_named(story) == "chat-2"
    assert story.replicas == 3
    began = story.now
    story.engines["chat-2"].saved = 0.9  # warmer than all others, but routers avoid it already
    while story.replicas == 3:
        assert story.run(5, QUIET)[-1].next_scale_in_candidate == "chat-2"
    assert "chat-2" not in story.engines
    assert story.now - began >= WINDOW


def test_the_next_scale_in_candidate_is_withdrawn_when_the_load_is_back() -> None:
    story = warmed(0.5, 0.2, 0.5)
    quiet_until_named(story)
    assert story.run(30, 2.5 * OVER)[-1].next_scale_in_candidate is None
    assert story.replicas == 3


def test_no_candidate_is_named_where_no_cache_is_lost() -> None:
    story = warmed(0.0, 0.0, 0.0)
    assert {decision.next_scale_in_candidate for decision in story.run(300, QUIET)} == {None}
    assert story.replicas == 1


def test_an_idle_fleet_does_not_wait_for_caches() -> None:
    story = warmed(0.5, 0.5, 0.5)
    began = story.now
    story.run(300, 0.0)
    moved = next(at for at, d in story.decisions if at > began and d.replicas == 2)
    assert moved - began <= 2.0 * WINDOW
