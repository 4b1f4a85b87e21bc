"""What the router knows of the replicas' caches: bounded, aged as an engine ages, corrected by the answers."""

import gzip
import json
from collections import OrderedDict
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import sluice_sim.data
from sluice_gateway.routing import Prompt, Replica, prefix_hashes
from sluice_gateway.routing.cache_view import LEAST_SHARE, CacheView

STEP = 64.0


def prompt(*steps: int) -> Prompt:
    return Prompt(STEP * len(steps) + 1, steps, STEP)


@given(
    st.integers(8, 64),
    st.lists(st.tuples(st.sampled_from("abcd"), st.lists(st.integers(0, 1000), max_size=20, unique=True)), max_size=40),
)
def test_memory_is_bounded(most: int, sent: list[tuple[str, list[int]]]) -> None:
    view = CacheView(most)
    for name, steps in sent:
        view.sent(Replica(name, kv_total=1e9), prompt(*steps))
        assert len(view) <= most


@given(st.integers(1, 30), st.lists(st.lists(st.integers(0, 60), max_size=20, unique=True), max_size=40))
def test_a_replica_is_known_to_hold_no_more_than_its_cache(size: int, sent: list[list[int]]) -> None:
    view, one = CacheView(), Replica("a", kv_total=size * STEP)
    for steps in sent:
        view.sent(one, prompt(*steps))
        assert len(view) <= size


def test_the_last_steps_of_the_oldest_prompt_age_first() -> None:
    view, one = CacheView(), Replica("a", kv_total=5 * STEP)
    view.sent(one, prompt(1, 2, 3))
    view.sent(one, prompt(7, 8, 9))
    assert view.cached_tokens("a", prompt(1, 2, 3)) == 2 * STEP
    assert view.cached_tokens("a", prompt(7, 8, 9)) == 3 * STEP


def test_an_answer_with_fewer_cached_tokens_shortens_the_list_and_right_ones_restore_it() -> None:
    view, one, long = CacheView(), Replica("a", kv_total=100 * STEP), prompt(*range(100))
    view.sent(one, long)
    for _ in range(100):
        view.answered("a", long, expected=100 * STEP, cached=0.0)
    view.sent(one, long)
    assert len(view) == 100 * LEAST_SHARE
    for _ in range(300):
        view.answered("a", long, expected=10 * STEP, cached=10 * STEP)
    view.sent(one, long)
    assert len(view) == 100


def test_a_forgotten_replica_holds_nothing() -> None:
    view, one = CacheView(), Replica("a", kv_total=1e6)
    view.sent(one, prompt(1, 2))
    view.forget("a")
    assert (len(view), view.cached_tokens("a", prompt(1, 2))) == (0, 0.0)


@given(st.binary(max_size=2000), st.binary(max_size=2000), st.integers(0, 2000))
def test_prompts_share_hashes_as_far_as_they_share_whole_steps(one: bytes, other: bytes, common: int) -> None:
    first, second = one[:common] + b"x" + other, one[:common] + b"y" + other
    hashes = [prefix_hashes(text, tenant="t", model="m") for text in (first, second)]
    assert [len(found) for found in hashes] == [len(first) // 256, len(second) // 256]
    shared = sum(a == b for a, b in zip(*hashes, strict=True))
    assert hashes[0][:shared] == hashes[1][:shared]
    assert shared == min(min(common, len(one)) // 256, len(hashes[0]))


def test_tenants_and_models_share_no_hash() -> None:
    text = b"the same text" * 100
    found = [prefix_hashes(text, tenant=t, model=m) for t, m in (("a", "m"), ("b", "m"), ("a", "n"))]
    assert len({step for steps in found for step in steps}) == 3 * len(found[0]) > 0


def test_the_view_of_one_replica_holds_on_a_real_trace_what_an_lru_of_its_size_holds() -> None:
    """A tenth of the blocks of Mooncake's conversations. `make bench-gateway` compares the view with real engines."""
    path = Path(sluice_sim.data.__file__).parent / "mooncake_conversation.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        prompts = [tuple(json.loads(line)["hash_ids"]) for line, _ in zip(lines, range(3000), strict=False)]
    size = len({block for steps in prompts for block in steps}) // 10
    view, pool = CacheView(), OrderedDict[int, None]()
    expected = held = total = 0.0
    for steps in prompts:
        one = Prompt(512.0 * len(steps) + 1, steps, 512.0)
        expected += view.cached_tokens("a", one)
        held += 512.0 * next((n for n, step in enumerate(steps) if step not in pool), len(steps))
        total += one.tokens
        for step in reversed(steps):
            pool[step] = None
            pool.move_to_end(step)
        while len(pool) > size:
            pool.popitem(last=False)
        view.sent(Replica("a", kv_total=size * 512.0), one)
    assert held > 0.05 * total
    assert abs(expected - held) < 0.02 * total
