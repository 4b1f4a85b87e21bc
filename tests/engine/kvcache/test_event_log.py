"""The events of the KV cache say of tagged prompts what the pool has, and cost nothing without a reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.core.translation import kv_events_of
from sluice_engine.kvcache.block_pool import BlockPool, extend_hashes
from sluice_engine.kvcache.event_log import EventLog, KvEvent, PromptStored
from sluice_engine.limits import Limits
from sluice_engine.messages import KvRemoved, KvStored
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler
from sluice_engine.scheduler.config import SchedulerConfig

SIZE = 4


def scheduler_of(num_blocks: int, *windows: int | None, prefix_cache: bool = True) -> Scheduler:
    config = SchedulerConfig(
        num_blocks=num_blocks,
        block_size=SIZE,
        max_num_seqs=8,
        max_model_length=40,
        windows=windows or (None,),
        prefix_cache=prefix_cache,
    )
    found = Scheduler(config, LimitController(Limits(max_batched_tokens=16)))
    found.pool.log = EventLog()
    return found


def run(scheduler: Scheduler, tokens: list[int], tag: str, outputs: int = 2) -> None:
    """Serve one request to its end; the books are checked after each step."""
    request = Request(f"r-{tag}", list(tokens), outputs, 0.0, prompt_tag=tag)
    scheduler.submit(request)
    while request.request_id in scheduler.requests:
        plan = scheduler.plan(0.0)
        assert plan is not None
        scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), 0.0)
        scheduler.check()


def take(scheduler: Scheduler) -> list[KvEvent]:
    assert scheduler.pool.log is not None
    return scheduler.pool.log.take()


def blocks_of(scheduler: Scheduler, tokens: list[int]) -> tuple[int, ...]:
    """The indexed blocks of a prompt, from the pool itself."""
    hashes: list[bytes] = []
    extend_hashes(hashes, tokens, SIZE)
    return scheduler.pool.find(hashes)


@given(
    st.integers(10, 24),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 36), st.integers(0, 2)), min_size=1, max_size=14),
)
def test_a_reader_of_the_events_knows_what_the_pool_has(num_blocks: int, asked: list[tuple[int, int, int]]) -> None:
    """Prompts of four texts, cut anywhere, with an end of their own."""
    scheduler, names = scheduler_of(num_blocks), dict[int, tuple[int, ...]]()
    for number, (text, length, end) in enumerate(asked):
        prompt = [100 + text] * length + [200 + number] * end
        run(scheduler, prompt, f"t{number}")
        for event in take(scheduler):
            if isinstance(event, int):
                del names[event]  # each block that is named leaves once
            else:
                assert (event.tag, event.tokens, event.block_tokens) == (f"t{number}", len(prompt), SIZE)
                assert len(event.blocks) == len(prompt) // SIZE
                names |= {block: tuple(prompt[: SIZE * (place + 1)]) for place, block in enumerate(event.blocks)}
        for block, tokens in names.items():
            assert blocks_of(scheduler, list(tokens))[-1:] == (block,)


def test_a_prompt_that_was_wholly_cached_is_reported_too() -> None:
    scheduler, prompt = scheduler_of(20), list(range(17))
    run(scheduler, prompt, "a")
    run(scheduler, prompt, "b")
    first, second = take(scheduler)
    assert isinstance(first, PromptStored) and isinstance(second, PromptStored)
    assert (first.blocks, second.tag) == (second.blocks, "b")


def test_untagged_prompts_and_blocks_that_no_event_has_named_are_no_events() -> None:
    scheduler = scheduler_of(12)
    for start in range(0, 400, 40):
        run(scheduler, list(range(start, start + 30)), "")
    assert take(scheduler) == []


def test_of_a_model_with_windows_the_layers_with_full_attention_are_reported() -> None:
    scheduler, prompt = scheduler_of(40, 8, None), list(range(17))
    run(scheduler, prompt, "a")
    (event,) = take(scheduler)
    assert isinstance(event, PromptStored)
    assert len(event.blocks) == 4
    other = scheduler_of(40, 8)
    run(other, prompt, "a")
    assert take(other) == []


def test_without_a_prefix_cache_nothing_is_stored() -> None:
    scheduler = scheduler_of(20, prefix_cache=False)
    run(scheduler, list(range(17)), "a")
    assert take(scheduler) == [PromptStored("a", 17, SIZE, ())]


def test_a_forgotten_block_has_left() -> None:
    pool = BlockPool(4, SIZE)
    pool.log = EventLog()
    blocks = pool.allocate(2)
    for number, block in enumerate(blocks):
        pool.index(block, bytes([number]))
    pool.log.stored(PromptStored("a", 8, SIZE, tuple(blocks)))
    pool.forget(blocks)
    assert pool.log.take() == [PromptStored("a", 8, SIZE, tuple(blocks)), *blocks]
    assert pool.log.take() == []


@pytest.mark.parametrize("events", [[], [3, 1], [PromptStored("a", 8, 4, (1, 2)), 3, PromptStored("b", 4, 4, ())]])
def test_events_keep_their_order_as_a_message(events: list[KvEvent]) -> None:
    flat: list[KvEvent] = []
    for each in kv_events_of(events).events:
        flat += each.blocks if isinstance(each, KvRemoved) else [PromptStored(*each.__reduce__()[1])]
    assert flat == events
    assert sum(isinstance(each, KvStored) for each in kv_events_of(events).events) == len(events) - sum(
        isinstance(each, int) for each in events
    )
