"""Decode graphs with two steps in flight give the eager tokens; static buffers keep their addresses and contents."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sluice_engine import messages
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.buffers import DecodeBuffers
from sluice_engine.backend.cuda.graphs import DecodeGraphs, graph_sizes, run_eagerly
from sluice_engine.backend.cuda.runner import GraphRunner
from sluice_engine.backend.cuda.sampling.masks import DeviceMasks
from sluice_engine.backend.cuda.step_tensors import StepTensors
from sluice_engine.backend.runner import Runner
from sluice_engine.core.engine import EngineLoop
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.kv_cache import KVCache
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.sampling.grammar_masks import PackedMasks
from sluice_engine.sampling_params import SamplingParams
from tests.engine.backend.cuda.simulated_device import CheckedCapture, FixedMemory, LatePipeline, LateQueue
from tests.engine.families import FAMILIES, save
from tests.engine.oracle import finish, options, run, submit

CPU = torch.device("cpu")
SLOTS = 18


class EagerBackend(CudaBackend):
    """The fused decoder without graphs, and the host's sampler."""

    def runner(self, model: LoadedModel, config: CacheConfig) -> Runner:
        return Runner.sized(model, config)


class Watched:
    """An engine on a late device, whose buffers are compared with what was written whenever they are copied from."""

    def __init__(self, folder: Path, **changes: object) -> None:
        self.queue, self.capture = LateQueue(), CheckedCapture()
        backend = CudaBackend(CPU, FixedMemory(), self.queue, self.capture)
        self.engine = EngineLoop(_options(folder, **changes), backend=backend)
        assert isinstance(self.engine.runner, GraphRunner)
        self.runner = self.engine.runner
        self.engine._pipeline = LatePipeline(self.runner)
        self.sizes: set[int] = set()
        self.rewritten: list[int] = []  # host sets that changed while a step in flight had to copy from them
        self.masked = 0  # steps with grammars
        self.moved = False  # a static tensor has another address
        self._addresses = self.runner.decode_step.addresses()
        self._watch(self.runner.decode_step.buffers)
        self._watch_masks(self.runner.decode_step.sampling.masks)

    def _watch(self, buffers: DecodeBuffers) -> None:
        write, upload = buffers.write, buffers.upload
        written: dict[int, list[torch.Tensor]] = {}

        def content(index: int) -> list[torch.Tensor]:
            host = buffers._host[index]
            return [each.clone() for each in (host.words, host.contexts, host.tables)]

        def checked_write(index: int, *rest: object) -> None:
            self.rewritten += [index] if index in written else []
            write(index, *rest)  # type: ignore[arg-type]
            written[index] = content(index)

        def checked_upload(index: int, size: int) -> None:
            self.rewritten += [] if all(map(torch.equal, written.pop(index), content(index))) else [index]
            self.moved |= self.runner.decode_step.addresses() != self._addresses
            self.sizes.add(size)
            upload(index, size)

        buffers.write = checked_write  # type: ignore[method-assign, assignment]
        buffers.upload = checked_upload  # type: ignore[method-assign]

    def _watch_masks(self, masks: DeviceMasks) -> None:
        write, upload = masks.write, masks.upload
        written: dict[int, list[torch.Tensor]] = {}

        def content(index: int) -> list[torch.Tensor]:
            return [each.clone() for each in masks._host[index]]

        def checked_write(index: int, given: PackedMasks) -> int:
            self.rewritten += [index] if index in written else []
            count = write(index, given)
            written[index] = content(index)
            return count

        def checked_upload(index: int, count: int, size: int) -> None:
            if count:
                self.masked += 1
                self.rewritten += [] if all(map(torch.equal, written.pop(index), content(index))) else [index]
            upload(index, count, size)

        masks.write = checked_write  # type: ignore[method-assign, assignment]
        masks.upload = checked_upload  # type: ignore[method-assign]


def _options(folder: Path, **changes: object):  # type: ignore[no-untyped-def]
    return options(folder, max_num_seqs=SLOTS, speculation="off", **changes)


@pytest.fixture(scope="module", params=["llama", "qwen2", "mixtral"])  # one layer group, two, and experts
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(FAMILIES[request.param](), tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(FAMILIES["llama"](), tmp_path_factory.mktemp("llama"))


Load = Callable[[EngineLoop], dict[str, list[int]]]


def compare(folder: Path, load: Load, **changes: object) -> Watched:
    """Both engines under the same load."""
    watched = Watched(folder, **changes)
    eager = EngineLoop(_options(folder, **changes), backend=EagerBackend(CPU, FixedMemory()))
    want = load(eager)
    assert load(watched.engine) == want
    assert sum(map(len, want.values())) > 5
    assert watched.capture.replays > 5
    assert (watched.rewritten, watched.moved) == ([], False)
    cache = {each.untyped_storage().data_ptr() for each in watched.runner.cache.tensors}
    assert cache <= watched.capture.touched <= cache | set(watched.runner.decode_step.addresses())
    return watched


def arriving(engine: EngineLoop) -> dict[str, list[int]]:
    """Requests that join and leave at random, half of them sampled."""
    dice = random.Random(1)
    texts: dict[str, list[int]] = {}
    waiting = [f"r{index}" for index in range(18)]
    while waiting or engine.has_work:
        for _ in range(min(len(waiting), dice.choice((0, 0, 0, 0, 1, 2, 6)))):
            prompt = [dice.randrange(2, 128) for _ in range(dice.randint(1, 40))]
            sampled = {"temperature": 0.8, "seed": dice.randrange(1 << 40), "top_k": dice.choice((0, 20)), "top_p": 0.9}
            more = sampled if dice.random() < 0.5 else {}
            submit(engine, waiting.pop(), prompt, dice.randint(1, 20), ignore_eos=True, **more)
        report = engine.step()
        engine.scheduler.check()
        for delta in () if report is None else report.deltas:
            texts.setdefault(delta.request_id, []).extend(delta.token_ids)
    return texts


def test_requests_that_join_and_leave_get_the_eager_tokens(folder: Path) -> None:
    watched = compare(folder, arriving)
    assert watched.queue.most == 2
    assert len(watched.sizes) >= 4


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, 17])
def test_each_size_gives_the_eager_tokens(llama: Path, rows: int) -> None:
    def load(engine: EngineLoop) -> dict[str, list[int]]:
        for index in range(rows):
            submit(engine, str(index), [5 + index, 6, 7], 9, ignore_eos=True)
        return finish(engine)

    size = next(size for size in (1, 2, 4, 8, 16, SLOTS) if size >= rows)
    assert size in compare(llama, load).sizes


def test_preempted_requests_get_the_eager_tokens(folder: Path) -> None:
    def load(engine: EngineLoop) -> dict[str, list[int]]:
        for index in range(6):
            submit(engine, str(index), [9 + index] * (14 + index), 30, ignore_eos=True)
        texts = finish(engine)
        assert engine.scheduler.preemptions > 0
        return texts

    shape = EngineLoop(options(folder)).model.kv_shape
    compare(folder, load, max_model_length=64, kv_size=shape.block_bytes(16) * len(shape.groups.windows) * 7)


def test_samples_that_share_a_prompt_get_the_eager_tokens(folder: Path) -> None:
    def load(engine: EngineLoop) -> dict[str, list[int]]:
        sampling = SamplingParams(max_tokens=20, temperature=0.9, seed=3, ignore_eos=True)
        samples = (("second", 4), ("third", 5))
        assert engine.submit(messages.Submit("first", tuple(range(5, 40)), sampling, 0.0, samples=samples)) is None
        return finish(engine)

    compare(folder, load)


def test_a_feature_of_the_hosts_sampler_beside_others_gets_the_eager_tokens(folder: Path) -> None:
    def load(engine: EngineLoop) -> dict[str, list[int]]:
        submit(engine, "plain", [5, 6, 7], 40, ignore_eos=True)
        submit(engine, "penalised", [8, 9], 12, ignore_eos=True, presence_penalty=1.5)
        return finish(engine)

    compare(folder, load)


def test_a_step_that_fails_on_the_device_is_run_again_and_so_is_the_one_behind_it(folder: Path) -> None:
    def load(engine: EngineLoop) -> dict[str, list[int]]:
        for index in range(3):
            submit(engine, str(index), [5 + index, 6, 7], 30, ignore_eos=True)
        return finish(engine)

    watched = Watched(folder)
    graphs, replays, reads = watched.runner.graphs, 0, 0
    readback = watched.runner.decode_step.readback
    read = readback.read
    replay = graphs.replay

    def failing(size: int) -> None:
        nonlocal replays
        replays += 1
        if replays == 9:
            raise RuntimeError("the kernel failed")
        replay(size)

    def counted(index: int, count: int) -> NDArray[np.int64]:
        nonlocal reads
        reads += 1
        return read(index, count)

    graphs.replay, readback.read = failing, counted  # type: ignore[method-assign]
    assert load(watched.engine) == load(EngineLoop(_options(folder), backend=EagerBackend(CPU, FixedMemory())))
    assert reads == replays - 2 > 15  # the failed step and the one behind it were run alone


def test_a_row_without_a_finite_maximum_fails_its_request_and_no_other(folder: Path) -> None:
    def load(engine: EngineLoop) -> dict[str, messages.Delta]:
        for index in range(3):
            submit(engine, str(index), [5 + index, 6, 7], 20, ignore_eos=True)
        return {delta.request_id: delta for report in run(engine) for delta in report.deltas if delta.finish}

    watched = Watched(folder)
    readback, downloads = watched.runner.decode_step.readback, 0
    download = readback.download

    def poisoned(index: int, size: int, logprobs: int = 0) -> None:
        nonlocal downloads
        downloads += 1
        if downloads == 6:
            readback.sampled[1] = -1
        download(index, size, logprobs)

    readback.download = poisoned  # type: ignore[method-assign]
    ended = load(watched.engine)
    assert {name: delta.finish for name, delta in ended.items()} == {"0": "length", "1": "error", "2": "length"}
    assert "not a number" in str(ended["1"].error)


def test_a_padding_row_writes_nothing_and_attends_to_nothing(llama: Path) -> None:
    watched = Watched(llama)
    step, seen, wrong = watched.runner.decode_step, list[tuple[int, int]](), list[torch.Tensor]()
    logits = step.decoder.logits

    def noted(tensors: StepTensors, cache: KVCache) -> torch.Tensor:
        if tensors.logits_index is None:  # of static tensors
            (slots,), rows = tensors.slots, int((tensors.contexts > 0).sum())
            seen.append((rows, len(slots)))
            right = (slots[rows:] == -1, slots[:rows] >= 0, tensors.contexts[rows:] == 0, tensors.tokens >= 0)
            wrong.extend(each for each in right if not bool(each.all()))
        return logits(tensors, cache)

    step.decoder.logits = noted  # type: ignore[method-assign, assignment]
    for index in range(3):
        submit(watched.engine, str(index), [5 + index, 6, 7], 9 + index, ignore_eos=True)
    finish(watched.engine)
    padded = {size for rows, size in seen if rows < size}
    assert (padded, wrong) == ({4}, [])


def test_sizes_are_1_2_4_8_and_every_8_and_the_largest_is_captured_first() -> None:
    assert graph_sizes(20) == [1, 2, 4, 8, 16, 20]
    assert graph_sizes(256) == [1, 2, 4, *range(8, 257, 8)]
    assert [graph_sizes(most) for most in (1, 2, 3, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8]]
    ran: list[int] = []

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        work()
        return work

    captured = DecodeGraphs(ran.append, [1, 2, 4], capture)
    assert ran == [4, 2, 1]
    assert [captured.size_for(rows) for rows in (1, 2, 3, 4)] == [1, 2, 4, 4]


def test_a_size_whose_capture_fails_runs_eagerly_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        if work.args[0] > 1:  # type: ignore[attr-defined]
            raise RuntimeError("not permitted when stream is capturing")
        return run_eagerly(work)

    graphs = DecodeGraphs(ran.append, [1, 2, 4], capture)
    graphs.replay(4)
    assert (ran, graphs.eager) == ([4], [4, 2])
    assert [record.getMessage() for record in caplog.records] == [
        "decode steps of 4 rows run without a graph: not permitted when stream is capturing"
    ]
