"""The engine fits its own step-time model while it serves: five non-negative coefficients, learned online.

Least squares on relative errors: each step is weighed by 1/T², T being its prediction once the model is trusted,
not the measured time. Weighing by the measured time counts fast steps for more than slow ones and learns E[1/t]/E[1/t²], a fifth below the mean where steps scatter by a third. Observations are grouped by the shape of
their step (powers of two of prompt tokens and of sequences); each group keeps its own decaying sums and forgets when a
step of its own shape arrives, and much more slowly when one of its kind (with or without prompt tokens) does. So
thousands of decode-only steps hardly move what was learned about prompts, and a long time at one batch size does not
erase what other sizes said. Steps that are off to one side time after time are another regime: their kind then begins
almost anew. The first step of a new size (a power of two of flat tokens) is left out: it pays for new primitives.

The sums of all groups form one 5 × 5 normal system, solved with the non-negativity of Lawson & Hanson's NNLS by
eliminating the most negative term. Standard library only: 5 × 5 is too small for anything else to be faster.
"""

import math
from collections.abc import Sequence

from sluice_perfmodel.step_time import StepTimeModel, StepWork

_TERMS = 5
_KEEP = 0.98  # of a group's sums per step of its own: about fifty steps of memory in each group
_FADE = 0.999  # of all groups of one kind (with or without a prompt) per step of that kind: a slower machine is noticed
_RIDGE = 1e-6  # pull towards the previous fit along directions that the data leaves open
_EAGER_STEPS = 64  # solved after every step until here, then after every fourth
_CLIP = 4.0  # a step this many times off the trusted prediction is a stall of the machine
_TRUSTED_STEPS = 8  # of one group, before its prediction is trusted that far: a first prompt is no stall of decoding
_ERROR_MEMORY = 0.02
_DRIFT_MEMORY = 0.1  # of the signed deviation of each kind: about ten steps
_DRIFT_CLIP = 0.4  # logarithm: a stall is one large deviation, another regime is many
_DRIFT_LIMIT = 0.2  # logarithm: a fifth off, step after step, is another regime and not noise
_DRIFT_STEPS = 16  # of one kind, between two such verdicts
_AFTERWARDS = 0.02  # what is kept of a kind's sums then: enough for shapes that have not come again yet
_LEAST = 0.1  # steps' worth of each group stay, however often: or large prompts would come to take no time at all


class _Sums:
    """XᵀX and Xᵀy of one group, decaying. Rows and times are divided by T, so that residuals are relative."""

    __slots__ = ("matrix", "steps", "updated_at", "vector", "weight")

    def __init__(self) -> None:
        self.steps = 0
        self.updated_at = 0  # in steps of the group's kind
        self.weight = 0.0  # steps that still count, as of then
        self.matrix = [[0.0] * _TERMS for _ in range(_TERMS)]
        self.vector = [0.0] * _TERMS


class StepTimeFit:
    """Observes (work, seconds) of every step; publishes `model`."""

    def __init__(self) -> None:
        self.model = StepTimeModel(base=0.0)
        self._groups: dict[tuple[int, int], _Sums] = {}
        self._kinds = {False: 0, True: 0}  # steps without and with prompt tokens
        self._seen: set[int] = set()
        self._error = 0.0
        self._steps = 0
        self._drift = {False: 0.0, True: 0.0}
        self._judged = {False: 0, True: 0}  # steps of the kind when it last began anew

    def observe(self, work: StepWork, seconds: float) -> None:
        """Learn from one step. Times that are not positive are ignored."""
        if seconds <= 0.0:
            return
        rows = (work.prefill_tokens + work.sequences).bit_length()  # what the linear layers' primitives are made for
        if rows not in self._seen:
            self._seen.add(rows)
            return
        sums = self._groups.setdefault((work.prefill_tokens.bit_length(), work.sequences.bit_length()), _Sums())
        unit = seconds
        if self._steps >= _EAGER_STEPS:
            predicted = self.model.predict(work)
            self._error += _ERROR_MEMORY * (min(abs(predicted - seconds) / seconds, 10.0) - self._error)
            if predicted > 0.0 and sums.steps >= _TRUSTED_STEPS:
                self._watch(work.prefill_tokens > 0, math.log(seconds / predicted))
                seconds = min(max(seconds, predicted / _CLIP), predicted * _CLIP)
                unit = predicted
        self._add(sums, work, seconds, unit)
        self._steps += 1
        if self._steps <= _EAGER_STEPS or self._steps % 4 == 0:
            self._solve()
        else:
            self._publish(_coefficients(self.model))

    def _watch(self, kind: bool, deviation: float) -> None:
        """Where steps of a kind are off to one side time after time, something has changed for good (another clock,
        another load on the machine): what was learned before then counts for little."""
        clipped = min(max(deviation, -_DRIFT_CLIP), _DRIFT_CLIP)
        self._drift[kind] += _DRIFT_MEMORY * (clipped - self._drift[kind])
        if abs(self._drift[kind]) < _DRIFT_LIMIT or self._kinds[kind] - self._judged[kind] < _DRIFT_STEPS:
            return
        self._judged[kind], self._drift[kind] = self._kinds[kind], 0.0
        for (prefill, _), sums in self._groups.items():
            if (prefill > 0) == kind:
                count = sums.weight * self._fade(kind, sums)  # steps; 0.0 for a shape that was not seen for hours
                keep = max(_AFTERWARDS, _LEAST / count) if count > _LEAST else 1.0
                sums.weight *= keep
                sums.matrix = [[keep * value for value in line] for line in sums.matrix]
                sums.vector = [keep * value for value in sums.vector]

    def _add(self, sums: _Sums, work: StepWork, seconds: float, unit: float) -> None:
        kind = work.prefill_tokens > 0
        self._kinds[kind] += 1
        keep = _KEEP * self._fade(kind, sums)
        sums.updated_at = self._kinds[kind]
        sums.steps += 1
        sums.weight = sums.weight * keep + 1.0
        row, told = [value / unit for value in features(work)], seconds / unit
        for i in range(_TERMS):
            line, scale = sums.matrix[i], row[i]
            for j in range(_TERMS):
                line[j] = line[j] * keep + scale * row[j]
            sums.vector[i] = sums.vector[i] * keep + scale * told

    def _fade(self, kind: bool, sums: _Sums) -> float:
        return float(_FADE ** (self._kinds[kind] - sums.updated_at))

    def _solve(self) -> None:
        matrix = [[0.0] * _TERMS for _ in range(_TERMS)]
        vector = [0.0] * _TERMS
        for (prefill, _), sums in self._groups.items():
            fade = self._fade(prefill > 0, sums)
            for i in range(_TERMS):
                vector[i] += fade * sums.vector[i]
                line, more = matrix[i], sums.matrix[i]
                for j in range(_TERMS):
                    line[j] += fade * more[j]
        before = _coefficients(self.model)
        for i in range(_TERMS):
            pull = _RIDGE * matrix[i][i]
            matrix[i][i] += pull
            vector[i] += pull * before[i]
        self._publish(solve_non_negative(matrix, vector))

    def _publish(self, coefficients: Sequence[float]) -> None:
        base, prefill_token, prefill_context, sequence, kv_token = coefficients
        self.model = StepTimeModel(
            base=base,
            prefill_token=prefill_token,
            prefill_context=prefill_context,
            sequence=sequence,
            kv_token=kv_token,
            error_ratio=self._error,
            steps=self._steps,
        )


def solve_non_negative(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """x ≥ 0 that nearly minimises ½xᵀAx − bᵀx for a symmetric positive semidefinite A: solve, drop the most negative
    term, again. Terms that never occurred (zero diagonal) stay 0."""
    active = [i for i in range(len(vector)) if matrix[i][i] > 0.0]
    scale = [matrix[i][i] ** -0.5 if matrix[i][i] > 0.0 else 0.0 for i in range(len(vector))]
    solution = [0.0] * len(vector)
    while active:
        scaled = _solve_linear(
            [[matrix[i][j] * scale[i] * scale[j] for j in active] + [vector[i] * scale[i]] for i in active]
        )
        lowest = min(range(len(active)), key=scaled.__getitem__)
        if scaled[lowest] >= 0.0:
            for place, i in enumerate(active):
                solution[i] = scaled[place] * scale[i]
            return solution
        del active[lowest]
    return solution


def _solve_linear(rows: list[list[float]]) -> list[float]:
    """Gaussian elimination with partial pivoting on an augmented matrix; a singular direction gets 0."""
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        if abs(head) < 1e-12:
            rows[column] = [0.0] * (size + 1)
            rows[column][column] = 1.0
            continue
        for below in range(column + 1, size):
            factor = rows[below][column] / head
            if factor:
                rows[below] = [a - factor * b for a, b in zip(rows[below], rows[column], strict=True)]
    solution = [0.0] * size
    for i in range(size - 1, -1, -1):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i]
    return solution


def features(work: StepWork) -> tuple[float, ...]:
    """What the five terms are multiplied by, in the order of `StepTimeModel`'s fields."""
    return (1.0, work.prefill_tokens, work.prefill_context, work.sequences, work.kv_tokens)


def _coefficients(model: StepTimeModel) -> tuple[float, ...]:
    return (model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token)
