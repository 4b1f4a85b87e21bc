"""What a replica's events say of its cache: steps lie in blocks, leave with them, and their memory is bounded."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sluice_gateway.routing import Prompt, Replica
from sluice_gateway.routing.awaited_prompts import AwaitedPrompts
from sluice_gateway.routing.cache_view import LEAST_SHARE, CacheView
from sluice_gateway.routing.replica_cache import MAX_TIED, ReplicaCache
from sluice_gateway.routing.step_ties import StoredPrompt, Tie, step_ties

BYTES = 256  # of a step
BLOCK = 16


def prompt_of(size: int, rate: float = 0.25) -> Prompt:
    """A prompt of `size` bytes whose tokens are estimated at `rate` per byte."""
    return Prompt(size * rate, tuple(range(size // BYTES)), BYTES * rate)


@given(st.integers(1, 60_000), st.floats(0.02, 2.0), st.floats(0.05, 1.5), st.integers(1, 64), st.integers(0, 400))
def test_a_step_lies_where_its_share_of_the_tokens_ends(
    size: int, rate: float, density: float, block: int, count: int
) -> None:
    prompt, tokens = prompt_of(size, rate), max(1, round(size * density))
    blocks = tuple(range(1000, 1000 + min(count, tokens // block)))
    found = step_ties(prompt, StoredPrompt(tokens, block, blocks))
    assert len(found) == len(prompt.steps)
    held = [tie for tie in found if tie is not None]
    assert found[: len(held)] == held  # a step is not cached where the one before it is not
    assert all(a.tokens <= b.tokens and a.block <= b.block for a, b in pairwise(held))
    for number, tie in enumerate(held, start=1):
        end = tokens * number * BYTES / size
        assert end - 1.001 <= tie.tokens <= end + 1e-3
        assert tie.block == blocks[max(0, tie.tokens // block - 1)]
    if len(blocks) == tokens // block > 0:
        assert len(held) == len(prompt.steps)


def test_a_prompt_of_which_only_the_beginning_is_cached_has_the_steps_of_the_beginning() -> None:
    found = step_ties(prompt_of(4 * BYTES), StoredPrompt(256, BLOCK, (7, 8, 9, 5, 2, 3, 4)))
    assert found == [Tie(5, 64), None, None, None]


def test_an_event_removes_the_steps_of_its_blocks_and_the_engine_counts_the_tokens() -> None:
    view, one, prompt = CacheView(), Replica("a", kv_total=1e6), prompt_of(4 * BYTES + 10)
    view.sent(one, prompt)
    view.stored("a", prompt, StoredPrompt(130, BLOCK, tuple(range(20, 28))))  # half of what was estimated
    assert view.cached_tokens("a", prompt) == 128.0
    view.removed("a", [99, 27, 26, 25])
    assert view.cached_tokens("a", prompt) == 64.0
    view.removed("a", [20, 21])
    assert view.cached_tokens("a", prompt) == 0.0


def test_a_step_that_two_prompts_share_leaves_with_the_block_that_was_named_last() -> None:
    view, one, prompt = CacheView(), Replica("a", kv_total=1e6), prompt_of(BYTES)
    for block in (3, 5):
        view.sent(one, prompt)
        view.stored("a", prompt, StoredPrompt(17, BLOCK, (block,)))
    view.removed("a", [3])
    assert view.cached_tokens("a", prompt) == 17.0
    view.removed("a", [5])
    assert (view.cached_tokens("a", prompt), len(view)) == (0.0, 0)


def test_a_prompt_that_was_not_stored_is_not_cached_but_one_that_is_known_stays() -> None:
    view, one, prompt = CacheView(), Replica("a", kv_total=1e6), prompt_of(2 * BYTES)
    view.sent(one, prompt)
    view.stored("a", prompt, StoredPrompt(128, BLOCK, ()))
    assert view.cached_tokens("a", prompt) == 0.0
    view.sent(one, prompt)
    view.stored("a", prompt, StoredPrompt(128, BLOCK, tuple(range(8))))
    view.sent(one, prompt)
    view.retract("a", prompt, 0.0)
    assert view.cached_tokens("a", prompt) == 127.0


def test_answers_shorten_the_list_only_while_no_events_arrive() -> None:
    view, one, prompt = CacheView(), Replica("a", kv_total=80 * 64.0), prompt_of(80 * BYTES)

    def disappoint() -> int:
        for _ in range(60):
            view.answered("a", prompt, expected=5000.0, cached=0.0)
        view.sent(one, prompt)
        return len(view)

    view.sent(one, prompt)
    view.stored("a", prompt, StoredPrompt(5120, BLOCK, tuple(range(320))))
    assert disappoint() == 80
    view.unfollow("a")
    assert disappoint() == 80 * LEAST_SHARE


STEPS = st.lists(st.integers(0, 40), max_size=12, unique=True)
TIES = st.lists(st.integers(0, 9), max_size=12)


class Cache(RuleBasedStateMachine):
    """Any order of events, right or wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = ReplicaCache()
        self.most = 0

    @rule(steps=STEPS, most=st.integers(0, 20))
    def use(self, steps: list[int], most: int) -> None:
        self.cache.use(steps, most)
        self.most = most

    @rule(steps=STEPS, blocks=TIES)
    def stored(self, steps: list[int], blocks: list[int]) -> None:
        held = [Tie(block, 16) for block in blocks[: len(steps)]]
        self.cache.stored(steps, held + [None] * (len(steps) - len(held)))

    @rule(blocks=TIES)
    def removed(self, blocks: list[int]) -> None:
        self.cache.removed(blocks)
        assert not set(blocks) & set(self.cache._tied)

    @rule(steps=STEPS)
    def retract(self, steps: list[int]) -> None:
        self.cache.retract(steps)

    @rule()
    def unfollow(self) -> None:
        self.cache.unfollow()
        assert not self.cache._tied

    @invariant()
    def blocks_and_steps_agree(self) -> None:
        cache = self.cache
        named = {step: block for block, steps in cache._tied.items() for step in steps}
        assert named == {step: tie.block for step, tie in cache._ties.items()}
        assert named.keys() <= cache._steps.keys()
        assert sum(map(len, cache._tied.values())) == len(named)
        assert all(0 < len(steps) <= MAX_TIED for steps in cache._tied.values())
        assert len(cache) <= self.most


TestCache = Cache.TestCase


def test_a_block_that_is_said_to_hold_everything_holds_a_bounded_number_of_steps() -> None:
    cache, steps = ReplicaCache(), range(1000)
    cache.use(steps, 2000)
    cache.stored(steps, [Tie(1, 16)] * 1000)
    cache.removed([1])
    assert len(cache) == 1000 - MAX_TIED


@given(st.integers(0, 50), st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=40))
def test_awaited_prompts_are_bounded_and_belong_to_their_replica(most: int, sent: list[tuple[str, int]]) -> None:
    awaited, tags = AwaitedPrompts("p", most), list[str]()
    for name, steps in sent:
        tags.append(awaited.add(name, prompt_of(steps * BYTES)))
        assert awaited._steps == sum(len(prompt.steps) for _, prompt in awaited._prompts.values()) <= most
    assert len(set(tags)) == len(sent)
    for (name, steps), tag in zip(sent, tags, strict=True):
        assert awaited.take("ab".replace(name, ""), tag) is None
        prompt = awaited.take(name, tag)
        assert prompt is None or len(prompt.steps) == steps
        assert awaited.take(name, tag) is None
    assert (len(awaited), awaited._steps) == (0, 0)
