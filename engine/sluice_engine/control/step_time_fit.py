"""Fits the engine's step-time model online: five non-negative coefficients, learned from every step.

The fit is least squares on relative errors: each step is weighted by 1/T², with T its predicted time once the group
has enough steps. Weighting by measured times would count fast steps more than slow ones and learn E[1/t]/E[1/t²],
a fifth below the mean where step times scatter by a third.

Observations are grouped by shape (powers of two of prompt tokens and of sequences). Each group keeps decaying sums. The
sums decay by `_GROUP_DECAY` at each step of the same shape and by `_KIND_DECAY` at each step of the same kind (with or
without prompt tokens). So thousands of decode-only steps barely change the prefill terms, and a long time at one batch
size does not erase the other sizes. If the steps of a kind deviate in one direction for long, the machine has changed:
the sums of that kind are nearly reset. The first step of a new size (a power of two of flat tokens) is excluded,
because it includes the creation of primitives.

The sums of all groups form one 5 × 5 normal system. It is solved with non-negative coefficients as in Lawson & Hanson's
NNLS, by eliminating the most negative term. Standard library only: no library is faster at 5 × 5.
"""

import math
from collections.abc import Sequence

from sluice_perfmodel.step_time import StepTimeModel, StepWork

_TERMS = 5
_GROUP_DECAY = 0.98  # per step of the group: an effective memory of about fifty steps
_KIND_DECAY = 0.999  # per step of the same kind, with or without a prompt: adapts to a slower machine
_RIDGE = 1e-6  # pull towards the previous fit in directions that the data does not determine
_SOLVE_EACH_STEP = 64  # steps after each of which the system is solved; later after every fourth step
_OUTLIER_RATIO = 4.0  # a step that deviates by more than this factor is a stall of the machine and is clipped
_MIN_STEPS = 8  # steps of a group before its predictions are used as weights and its outliers are clipped
_ERROR_WEIGHT = 0.02  # exponential smoothing of the relative error
_DRIFT_WEIGHT = 0.1  # exponential smoothing of the signed deviation per kind: about ten steps
_DRIFT_CLIP = 0.4  # natural logarithm: limits the influence of one stall
_DRIFT_LIMIT = 0.2  # natural logarithm: a mean deviation of a fifth means that the machine has changed
_DRIFT_STEPS = 16  # least steps of the kind between two resets
_RESET_WEIGHT = 0.02  # share of a kind's sums kept at a reset, for shapes without new observations
_MIN_GROUP_STEPS = 0.1  # weight in steps that a reset leaves in each group, so that no prefill term becomes 0


class _Sums:
    """XᵀX and Xᵀy of one group, decaying. Rows and times are divided by T, so that residuals are relative."""

    __slots__ = ("matrix", "steps", "updated_at", "vector", "weight")

    def __init__(self) -> None:
        self.steps = 0
        self.updated_at = 0  # count of steps of the group's kind
        self.weight = 0.0  # effective number of steps at `updated_at`
        self.matrix = [[0.0] * _TERMS for _ in range(_TERMS)]
        self.vector = [0.0] * _TERMS


class StepTimeFit:
    """Observes (work, seconds) of every step; publishes `model`."""

    def __init__(self) -> None:
        self.model = StepTimeModel(base=0.0)
        self._groups: dict[tuple[int, int], _Sums] = {}
        self._kind_steps = {False: 0, True: 0}  # steps without and with prompt tokens
        self._known_sizes: set[int] = set()
        self._error = 0.0
        self._steps = 0
        self._drift = {False: 0.0, True: 0.0}
        self._reset_at = {False: 0, True: 0}  # steps of the kind at its last reset

    def observe(self, work: StepWork, seconds: float) -> None:
        """Learn from one step. Non-positive times are ignored."""
        if seconds <= 0.0:
            return
        rows = (work.prefill_tokens + work.sequences).bit_length()  # the linear layers' primitives depend on it
        if rows not in self._known_sizes:
            self._known_sizes.add(rows)
            return
        sums = self._groups.setdefault((work.prefill_tokens.bit_length(), work.sequences.bit_length()), _Sums())
        unit = seconds
        if self._steps >= _SOLVE_EACH_STEP:
            predicted = self.model.predict(work)
            self._error += _ERROR_WEIGHT * (min(abs(predicted - seconds) / seconds, 10.0) - self._error)
            if predicted > 0.0 and sums.steps >= _MIN_STEPS:
                self._detect_drift(work.prefill_tokens > 0, math.log(seconds / predicted))
                seconds = min(max(seconds, predicted / _OUTLIER_RATIO), predicted * _OUTLIER_RATIO)
                unit = predicted
        self._add(sums, work, seconds, unit)
        self._steps += 1
        if self._steps <= _SOLVE_EACH_STEP or self._steps % 4 == 0:
            self._solve()
        else:
            self._publish(_coefficients(self.model))

    def _detect_drift(self, kind: bool, deviation: float) -> None:
        """Reset the sums of a kind if its steps deviate in one direction for long: the machine's speed has changed."""
        clipped = min(max(deviation, -_DRIFT_CLIP), _DRIFT_CLIP)
        self._drift[kind] += _DRIFT_WEIGHT * (clipped - self._drift[kind])
        if abs(self._drift[kind]) < _DRIFT_LIMIT or self._kind_steps[kind] - self._reset_at[kind] < _DRIFT_STEPS:
            return
        self._reset_at[kind], self._drift[kind] = self._kind_steps[kind], 0.0
        for (prefill, _), sums in self._groups.items():
            if (prefill > 0) == kind:
                count = sums.weight * self._fade(kind, sums)  # steps; 0.0 for a shape that was not seen for hours
                keep = max(_RESET_WEIGHT, _MIN_GROUP_STEPS / count) if count > _MIN_GROUP_STEPS else 1.0
                sums.weight *= keep
                sums.matrix = [[keep * value for value in line] for line in sums.matrix]
                sums.vector = [keep * value for value in sums.vector]

    def _add(self, sums: _Sums, work: StepWork, seconds: float, unit: float) -> None:
        kind = work.prefill_tokens > 0
        self._kind_steps[kind] += 1
        keep = _GROUP_DECAY * self._fade(kind, sums)
        sums.updated_at = self._kind_steps[kind]
        sums.steps += 1
        sums.weight = sums.weight * keep + 1.0
        row, target = [value / unit for value in features(work)], seconds / unit
        for i in range(_TERMS):
            line, scale = sums.matrix[i], row[i]
            for j in range(_TERMS):
                line[j] = line[j] * keep + scale * row[j]
            sums.vector[i] = sums.vector[i] * keep + scale * target

    def _fade(self, kind: bool, sums: _Sums) -> float:
        return float(_KIND_DECAY ** (self._kind_steps[kind] - sums.updated_at))

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
    """x ≥ 0 that nearly minimises ½xᵀAx − bᵀx for a symmetric positive semidefinite A: solves, drops the most negative
    term, and repeats. Terms that never occurred (zero diagonal) stay 0.
    """
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
    """The factors of the five terms, in the order of `StepTimeModel`'s fields."""
    return (1.0, work.prefill_tokens, work.prefill_context, work.sequences, work.kv_tokens)


def _coefficients(model: StepTimeModel) -> tuple[float, ...]:
    return (model.base, model.prefill_token, model.prefill_context, model.sequence, model.kv_token)
