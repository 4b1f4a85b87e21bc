"""The table of `sluice up`: what fits a terminal, in columns that do not move."""

from dataclasses import replace
from itertools import pairwise

import pytest
from rich.console import Console

from sluice.up.table import COLUMNS, columns_for, milliseconds, name_width, status_table
from sluice.up.wording import local_words
from tests.operator.cluster.local.test_up import snapshot


def shown(width: int, **changes: object) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(status_table(snapshot(**changes), width))
    return capture.get().splitlines()


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
def test_the_table_is_never_wider_than_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in shown(width))


def test_all_columns_fit_80_and_they_go_one_by_one_below() -> None:
    assert columns_for(80) == COLUMNS
    counts = [len(columns_for(width)) for width in range(30, 81)]
    assert counts == sorted(counts) and all(after - before <= 1 for before, after in pairwise(counts))
    assert [column.heading for column in columns_for(47)] == ["TTFT", "RUN", "WAIT"]


def test_no_value_moves_a_column() -> None:
    (small, *_), (large, *_) = (
        shown(80, ttft_ms=value, itl_ms=value, kv_percent=percent, limit=limit, queue=limit, running=limit, why=why)
        for value, percent, limit, why in ((None, None, None, ""), (123_456.7, 100.0, 1024, "x" * 500))
    )
    assert small == large
    replicas = [shown(80, pods=(replace(snapshot().pods[0], phase=phase),)) for phase in ("ready", "draining")]
    assert [line.index("3") for line in (replicas[0][2], replicas[1][2])] == [73, 73]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (2.44, "2.4 ms"), (120.0, "120 ms"), (9999.0, "9999 ms"), (61_000.0, "61 s")]
)
def test_a_latency_has_at_most_seven_characters(value: float | None, text: str) -> None:
    assert milliseconds(value) == text


def test_the_name_takes_what_the_numbers_leave() -> None:
    assert [name_width(width) for width in (30, 80, 120)] == [20, 19, 40]


def test_sentences_name_replicas_where_there_is_no_pod() -> None:
    assert local_words("No pod is ready: pods are loading. Pods drain.") == (
        "No replica is ready: replicas are loading. Replicas drain."
    )
    assert "kubectl" not in local_words(
        "Read the log with kubectl logs --previous; the kubelet restarts the container."
    )
