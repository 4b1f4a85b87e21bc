"""What goes wrong before a step computes: bad data and lack of memory fail whom they concern, and nobody else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine import messages
from sluice_engine.backend import runner
from sluice_engine.backend.block_copies import BlockCopier
from sluice_engine.backend.failure_isolation import check_device
from sluice_engine.core.engine import EngineLoop
from sluice_engine.model.kv_cache import KVCache, KVShape
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Plan
from sluice_perfmodel.step_time import StepWork
from tests.engine.oracle import options, run, submit

PROMPTS = {name: [2 + (7 * at + size) % 120 for at in range(size)] for name, size in [("a", 20), ("b", 40), ("c", 90)]}
NOWHERE = 10**6  # no block has this number
SHAPE = KVShape(layers=2, kv_heads=1, head_dim=2, dtype=torch.float32)

Told = dict[str, tuple[list[int], str | None, str | None]]


def told(reports: list[messages.StepReport]) -> Told:
    """Tokens, how it ended and with which error, by request."""
    found: Told = {}
    for delta in (delta for report in reports for delta in report.deltas):
        tokens = found[delta.request_id][0] if delta.request_id in found else []
        found[delta.request_id] = ([*tokens, *delta.token_ids], delta.finish, delta.error)
    return found


def start(folder: Path, overlap: bool) -> EngineLoop:
    engine = EngineLoop(options(folder, overlap=overlap, speculation="off"))
    for name, prompt in PROMPTS.items():
        submit(engine, name, prompt, 12, ignore_eos=True)
    return engine


@pytest.fixture(params=[False, True], ids=["in turn", "overlapped"])
def overlap(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def undisturbed(tiny_llama: Path) -> Told:
    return told(run(start(tiny_llama, overlap=False)))


def out_of_memory(when: Callable[..., bool], work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, for which there is no memory where `when` says so."""

    def attempt(*arguments: Any, **named: Any) -> Any:
        if when(*arguments, **named):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return work(*arguments, **named)

    return attempt


def test_a_token_that_no_tensor_holds_fails_its_request_alone(
    tiny_llama: Path, undisturbed: Told, overlap: bool
) -> None:
    engine = start(tiny_llama, overlap)
    engine.scheduler.submit(Request("bad", [5, 2**70, 6], 9, 0.0))
    found = told(run(engine))
    assert "too large" in str(found["bad"][2])
    assert {name: found[name] for name in PROMPTS} == undisturbed
    assert engine.scheduler.pool.held == 0


def test_without_memory_to_prepare_a_step_its_largest_request_fails(
    tiny_llama: Path, undisturbed: Told, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(tiny_llama, overlap)
    lacking = out_of_memory(lambda _, tables, other: other >= 0 and tables.shape[-1] > 5, np.where)  # block tables of c
    monkeypatch.setattr(np, "where", lacking)
    found = told(run(engine))
    assert "ran out of memory" in str(found["c"][2])
    assert (found["a"], found["b"]) == (undisturbed["a"], undisturbed["b"])


def test_a_failed_block_copy_fails_the_requests_that_need_the_block(
    tiny_llama: Path, undisturbed: Told, overlap: bool
) -> None:
    engine = start(tiny_llama, overlap)
    reports = [engine.step(), engine.step()]
    engine.scheduler.state.swap._copies.append((NOWHERE, engine.scheduler.requests["b"].blocks[0]))
    found = told([report for report in reports if report is not None] + run(engine))
    assert "could not be written" in str(found["b"][2])
    assert (found["a"], found["c"]) == (undisturbed["a"], undisturbed["c"])
    assert engine.scheduler.pool.held == 0


def test_zeroing_and_copying_blocks_without_scratch_memory_fails_no_request(
    tiny_llama: Path, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Block by block it takes none. The samples share a prompt that ends within a block."""

    def answers() -> Told:
        engine = start(tiny_llama, overlap)
        samples = (("d1", 1), ("d2", 2))
        sampling = SamplingParams(max_tokens=12, temperature=0.9, seed=0, ignore_eos=True)
        engine.submit(messages.Submit("d0", tuple(PROMPTS["a"]), sampling, 0.0, samples=samples))
        engine.scheduler.submit(Request("bad", [5, 2**70, 6], 9, 0.0))  # whose blocks are zeroed
        return told(run(engine))

    want = answers()
    attempts: list[str] = []

    def noted(name: str) -> Callable[..., bool]:
        def whole_blocks(tensor: torch.Tensor, *_: object) -> bool:
            attempts.append(name)
            return tensor.dim() == 4

        return whole_blocks

    for name in ("index_select", "index_fill_"):
        monkeypatch.setattr(torch.Tensor, name, out_of_memory(noted(name), getattr(torch.Tensor, name)))
    assert answers() == want
    assert set(attempts) == {"index_select", "index_fill_"}


# --- what is done to blocks ----------------------------------------------------------------------------------------


def plan(scrub: tuple[int, ...] = (), copies: tuple[tuple[int, int], ...] = ()) -> Plan:
    return Plan(1, (), (), None, StepWork(), 0, 0, scrub=scrub, copies=copies)


def cache_of(blocks: int = 8, host: int = 2) -> KVCache:
    """Every block holds its number."""
    cache = KVCache(SHAPE, blocks, 2, torch.device("cpu"), host)
    for tensor in cache.tensors:
        tensor.copy_(torch.arange(blocks + 1.0)[:, None, None, None].expand_as(tensor))
    return cache


def contents(cache: KVCache) -> list[set[float]]:
    """What each block holds in all layers."""
    return [{float(value) for tensor in cache.tensors for value in tensor[block].flatten()} for block in range(8)]


@contextmanager
def without_memory() -> Iterator[None]:
    """Whatever zeroes or copies several blocks in one go fails."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("index_select", "index_fill_"):
            patch.setattr(torch.Tensor, name, out_of_memory(lambda *_: True, getattr(torch.Tensor, name)))
        yield


blocks = st.integers(0, 7)


@given(st.lists(blocks, unique=True), st.permutations(range(8)), st.integers(0, 4))
def test_copying_blocks_one_by_one_equals_copying_them_at_once(scrub: list[int], order: list[int], count: int) -> None:
    at_once, one_by_one = cache_of(), cache_of()
    copies = list(zip(order[:count], order[4:], strict=False))
    assert BlockCopier(at_once).apply(plan(tuple(scrub), tuple(copies))) == set()
    patient = BlockCopier(one_by_one)
    with without_memory():
        bad = plan((*scrub, NOWHERE), (*copies, (NOWHERE, order[4]), (0, NOWHERE)))
        assert patient.apply(bad) == {NOWHERE, order[4]}
        assert patient.apply(plan()) == {NOWHERE}  # unfit until it has been zeroed
    assert contents(one_by_one) == contents(at_once)


def test_a_block_restored_from_a_lost_host_block_is_invalid_until_it_is_rewritten() -> None:
    cache = cache_of()
    work = BlockCopier(cache)
    assert work.apply(plan(copies=((NOWHERE, 8), (1, 9)))) == set()  # 8 and 9 are the host's
    assert work.apply(plan(copies=((8, 2), (9, 3)))) == {2}
    assert contents(cache)[2:4] == [{2.0}, {1.0}]
    assert work.apply(plan(copies=((4, 8), (8, 2)))) == set()
    assert contents(cache)[2] == {4.0}


def test_a_lost_device_ends_the_loop_and_invalid_requests_do_not(
    tiny_llama: Path, overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(tiny_llama, overlap)
    for _ in range(20):
        engine.scheduler.submit(Request("bad", [5, 2**70, 6], 9, 0.0))
        run(engine)
    device = torch.device("meta")  # has memory and cannot compute
    monkeypatch.setattr(runner, "check_device", lambda _: check_device(device))
    submit(engine, "a", PROMPTS["a"], 2)
    run(engine)
    monkeypatch.setattr(engine.model.module, "forward", out_of_memory(lambda *_, **__: True, lambda: None))
    submit(engine, "b", PROMPTS["b"], 2)
    with pytest.raises(RuntimeError, match="meta fails every operation; the engine must be restarted"):
        run(engine)
