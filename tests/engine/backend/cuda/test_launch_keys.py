"""Which kernels a mixed step needs depends on its counts only by kind, and on neither context lengths nor row order."""

import pytest
import torch

from sluice_engine.backend.batch_builder import BatchBuilder
from sluice_engine.backend.cuda.decode_step import DecodeStep
from sluice_engine.backend.cuda.precompile.sizes import META
from sluice_engine.backend.cuda.step_tensors import StepTensors, step_tensors
from sluice_engine.scheduler import Row
from sluice_kernels import launch
from tests.engine.backend.cuda.test_no_synchronisation import BLOCK, BLOCKS, Model

LENGTH = 2048
ROWS = 40


@pytest.fixture(scope="module")
def step() -> DecodeStep:
    return Model(1, 1024, 2048, 8, vocab=512).step()


def tensors(singles: int, chunks: int, context: int) -> StepTensors:
    """A step of single tokens and of chunks of three tokens, all after `context` tokens."""
    builder = BatchBuilder(max_num_seqs=ROWS, max_model_length=LENGTH, block_size=BLOCK, null_block=BLOCKS, device=META)
    counts = [1] * singles + [3] * chunks
    rows = [
        Row(str(slot), slot, context, (5,) * count, True, 0, (0,) * -(-(context + count) // BLOCK))
        for slot, count in enumerate(counts)
    ]
    builder.install(rows)
    return step_tensors(builder.batch(builder.gather(rows)).batch)


def keys(step: DecodeStep, singles: int, chunks: int, context: int) -> set[tuple[object, ...]]:
    with torch.inference_mode(), launch.recording(90) as launches:
        step.decoder.logits(tensors(singles, chunks, context), step.cache)
    return {one.key for one in launches}


@pytest.mark.parametrize(("singles", "chunks"), [(0, 1), (0, 5), (3, 1), (3, 5)])
def test_contexts_do_not_change_the_kernels_of_chunks(step: DecodeStep, singles: int, chunks: int) -> None:
    short = keys(step, singles, chunks, 4)
    for context in (20, 250, 300, 1000, 2000):
        longer = keys(step, singles, chunks, context)
        attention = {key for key in longer if key[0] == "_paged_prefill"}
        assert attention == {key for key in short if key[0] == "_paged_prefill"} != set()


def test_single_tokens_before_chunks_do_not_change_the_kernels_of_chunks(step: DecodeStep) -> None:
    found = [
        {key for key in keys(step, singles, 5, 40) if key[0] == "_paged_prefill"} for singles in (0, 1, 2, 3, 7, 16, 17)
    ]
    assert all(each == found[0] for each in found)
