"""Inputs that are written again are those that a builder without such memory makes, and no step's change while it runs."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.backend.batch_builder import BatchBuilder
from sluice_engine.backend.cpu.native import step_struct
from sluice_engine.backend.step_inputs import GatheredRows, StepInputs
from sluice_engine.scheduler import PENDING, Row
from sluice_engine.scheduler.plan import Fork

SLOTS, BLOCK, BLOCKS_EACH, HEADS = 4, 4, 8, 2
LENGTH: Final = BLOCK * BLOCKS_EACH
NULL: Final = 10**6
CACHE: Final = torch.empty(1, BLOCK, 1, 16)
KERNEL: Final = SimpleNamespace(threads=1, tile_rows=lambda *_: 0)
ACTIONS: Final = (
    "decode",
    "decode",
    "decode",
    "decode",
    "chunk",
    "known",
    "end",
    "copy",
    "fork",
    "parts",
    "no sample",
    "reorder",
)


def builder(two_in_flight: bool) -> BatchBuilder:
    return BatchBuilder(
        max_num_seqs=SLOTS,
        max_model_length=LENGTH,
        block_size=BLOCK,
        null_block=NULL,
        device=torch.device("cpu"),
        two_in_flight=two_in_flight,
    )


@dataclass
class Request:
    """A request of the plans: its blocks are new to the runner when a row first names them."""

    name: str
    slot: int
    start: int
    blocks: list[int] = field(default_factory=list)


class Plans:
    """Rows of successive steps as a scheduler makes them; blocks and requests are numbered as they come."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._made = 0

    def rows(self, action: str, place: int) -> list[Row]:
        """The next step, in which the request at this place does something else than decode."""
        if action == "end" and self._requests:
            del self._requests[place % len(self._requests)]
        if action == "reorder":
            self._requests.reverse()
        self._requests = [each for each in self._requests if each.start < LENGTH - BLOCK]
        odd = self._requests[place % len(self._requests)] if self._requests else None
        rows = [self._decode(each, action if each is odd else "decode") for each in self._requests]
        if action == "chunk" or not rows:
            rows.append(self._chunk())
            rows = [each for each in rows if each.slot >= 0]
        return rows

    def _block(self) -> int:
        self._made += 1
        return self._made

    def _decode(self, request: Request, action: str) -> Row:
        start, first = request.start, len(request.blocks)
        new: tuple[int, ...] = ()
        if start // BLOCK == first:
            new = (self._block(),)
            request.blocks += new
        elif action == "copy":  # a block shared with another request is replaced
            first, new = first - 1, (self._block(),)
            request.blocks[-1] = new[0]
        request.start += 1
        forks = (Fork(f"{request.name}-fork", request.slot),) if action == "fork" else ()
        token = 7 if action == "known" else PENDING
        return Row(request.name, request.slot, start, (token,), action != "no sample", first, new, forks=forks)

    def _chunk(self) -> Row:
        free = sorted(set(range(SLOTS)) - {each.slot for each in self._requests})
        if not free:
            return Row("", -1, 0, (1,), False, 0, ())
        request = Request(f"r{self._block()}", free[0], 5, [self._block(), self._block()])
        self._requests.append(request)
        return Row(request.name, request.slot, 0, (1, 2, 3, 4, 5), True, 0, tuple(request.blocks))


def arrays(gathered: list[GatheredRows], inputs: StepInputs) -> dict[str, Any]:
    """A copy of all that a step reads."""
    batch, logits = inputs.batch, inputs.logits_rows
    found: dict[str, Any] = {
        "ids": batch.input_ids,
        "positions": batch.position_ids,
        "slots": batch.slot_mapping,
        "logits index": batch.logits_index,
        "logits at": logits.at,
        "logits slots": logits.slots,
        "logits positions": logits.positions,
        "samples": logits.samples,
        "pending": inputs.pending,
        "pending slots": inputs.pending_slots,
    }
    for number, group in enumerate(batch.groups):
        found |= {f"tables {number}": group.block_tables, f"context {number}": group.context_lens}
        found |= {f"queries {number}": group.query_positions}
        found |= {f"mask {number}": group.mask(None, BLOCK, torch.float32)}
    for number, part in enumerate(gathered):
        found |= {f"{name} {number}": getattr(part, name) for name in ("slots", "starts", "counts", "tables")}
    native = batch.native.setdefault(HEADS, step_struct(batch, HEADS, CACHE, CACHE.dtype, KERNEL))  # type: ignore[arg-type] # as the runner
    found |= {f"native {number}": array for number, array in enumerate(native.arrays)}
    copies = {
        name: np.copy(array.numpy() if isinstance(array, torch.Tensor) else array) for name, array in found.items()
    }
    return copies | {"requests": list(logits.request_ids), "known": inputs.ids}


def assert_equal(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(got[name], value, err_msg=name)
        else:
            assert got[name] == value, name


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, SLOTS)), min_size=4, max_size=40))
def test_each_step_has_the_inputs_of_its_rows_until_the_next_but_one(steps: list[tuple[str, int]]) -> None:
    plans, again, anew = Plans(), builder(True), builder(False)
    running: tuple[list[GatheredRows], StepInputs, dict[str, Any]] | None = None
    for action, place in [("chunk", 0)] * 2 + steps:
        rows = plans.rows(action, place)
        for each in (again, anew):
            each.install(rows)
        if action == "parts":  # as when the rows of a failed step are gathered one by one
            for row in rows:
                again.gather([row])
            again.forget()
        gathered = again.gather(rows)
        wanted = anew.gather(rows)
        inputs, fresh = again.batch(gathered), anew.batch(wanted)
        for step in (inputs, fresh):  # the runner fills in the tokens of the preceding step
            step.batch.input_ids.numpy()[0, step.pending] = 5
        want = arrays(wanted, fresh)
        assert_equal(arrays(gathered, inputs), want)
        assert [list(part.rows) for part in gathered] == [list(part.rows) for part in wanted]
        if running is not None:
            assert_equal(arrays(running[0], running[1]), running[2])
        running = gathered, inputs, want


@pytest.mark.parametrize("again", [True, False])
def test_memory_is_written_again_only_if_two_steps_are_in_flight(again: bool) -> None:
    plans, each = Plans(), builder(again)
    each.install(plans.rows("chunk", 0))
    seen = []
    for _ in range(3):
        rows = plans.rows("decode", 0)
        each.install(rows)
        seen.append(each.batch(each.gather(rows)).batch.slot_mapping.data_ptr())
    assert (seen[0] == seen[2]) == again
    assert seen[0] != seen[1]
