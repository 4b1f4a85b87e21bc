"""Fits the five terms of the step-time model to published hardware measurements.

A row of a measurement is a run: one step that computes the prompts of a batch, then decode steps. The model is linear,
so both sources fit the same way once each row is written as sums over its steps: non-negative least squares on relative
errors (the engine's own solver).
"""

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice_engine.control.step_time_fit import solve_non_negative
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.data import FOLDER

HEADER: Final = ("model", "hardware", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time")


@dataclass(frozen=True, slots=True)
class Row:
    """Sums of the model's regressors (counts) over the steps of one measured run, and their total time in seconds."""

    steps: float
    prefill_tokens: float
    prefill_context: float
    sequences: float
    kv_tokens: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model with its error ratio, and the largest prompt (tokens) and batch that were measured."""

    model: StepTimeModel
    longest_prompt: int
    largest_batch: int


def splitwise(model: str, hardware: str, tensor_parallel: int) -> Fit:
    """Fit one model and hardware of Splitwise's table.

    The table is in milliseconds; prompt_time is one step over the whole batch, token_time is one decode step."""
    path = FOLDER / "profile_splitwise_perf_model.csv.gz"
    rows: list[Row] = []
    reach = _Reach()
    for line in _lines(path):
        if (line["model"], line["hardware"], line["tensor_parallel"]) != (model, hardware, str(tensor_parallel)):
            continue
        prompt, batch, tokens = reach.sizes(line)
        rows.append(_prefill(prompt, batch, float(line["prompt_time"]) / 1000.0))
        mean_context = prompt + tokens / 2.0
        rows.append(Row(1, 0, 0, batch, batch * mean_context, float(line["token_time"]) / 1000.0))
    return Fit(_fitted(rows), reach.prompt, reach.batch)


def sageserve(tensor_parallel: int) -> Fit:
    """Fit SageServe's table of Llama-3.1-8B on A100.

    The table is in seconds; token_time is the time of all decode steps. prompt_time does not grow with the batch, but
    token_time does, by the cost of the other prompts. Therefore each row is the sum over a whole run."""
    rows: list[Row] = []
    reach = _Reach()
    for line in _lines(FOLDER / f"profile_sageserve_llama31_8b_tp{tensor_parallel}.csv.gz"):
        prompt, batch, tokens = reach.sizes(line)
        first = float(line["prompt_time"])
        if batch == 1:
            rows.append(_prefill(prompt, 1, first))
        decodes = batch * (tokens - 1)
        rows.append(
            Row(
                steps=tokens,
                prefill_tokens=batch * prompt,
                prefill_context=batch * prompt * prompt / 2.0,
                sequences=decodes,
                kv_tokens=decodes * (prompt + tokens / 2.0),
                seconds=first + float(line["token_time"]),
            )
        )
    return Fit(_fitted(rows), reach.prompt, reach.batch)


@dataclass(slots=True)
class _Reach:
    """The largest prompt (tokens) and batch of a measurement."""

    prompt: int = 0
    batch: int = 0

    def sizes(self, line: dict[str, str]) -> tuple[int, int, int]:
        prompt, batch, tokens = (int(line[name]) for name in ("prompt_size", "batch_size", "token_size"))
        self.prompt, self.batch = max(self.prompt, prompt), max(self.batch, batch)
        return prompt, batch, tokens


def _prefill(prompt: int, batch: int, seconds: float) -> Row:
    return Row(1, batch * prompt, batch * prompt * prompt / 2.0, 0, 0, seconds)


def _fitted(rows: Sequence[Row]) -> StepTimeModel:
    """Non-negative least squares on relative errors; `error_ratio` is the mean absolute relative error."""
    table = [
        [value / row.seconds for value in
         (row.steps, row.prefill_tokens, row.prefill_context, row.sequences, row.kv_tokens)]
        for row in rows
    ]  # fmt: skip
    size = range(5)
    matrix = [[sum(line[i] * line[j] for line in table) for j in size] for i in size]
    found = solve_non_negative(matrix, [sum(line[i] for line in table) for i in size])
    errors = [abs(sum(a * b for a, b in zip(found, line, strict=True)) - 1.0) for line in table]
    base, prefill_token, prefill_context, sequence, kv_token = found
    return StepTimeModel(
        base, prefill_token, prefill_context, sequence, kv_token, error_ratio=sum(errors) / len(errors), steps=len(rows)
    )


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
