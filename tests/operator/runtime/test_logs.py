"""Off a terminal, a log line is a JSON object that carries the fields given as `extra`, in the operator and the engine."""

import io
import json
import logging
import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sluice import contract, json_logs
from sluice.json_logs import JsonLines
from sluice_operator.autoscaler.values import Decision, Reason
from sluice_operator.reconcile.reconciler import log_decision
from tests.operator.fake_cluster import KEY, cluster_with, operator


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    before = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = before[0]
    logger.setLevel(before[1])


def line(**extra: Any) -> dict[str, Any]:
    record = logging.getLogger("a").makeRecord("a", logging.INFO, "file.py", 1, "to %s\nand", ("b",), None, extra=extra)
    text = JsonLines().format(record)
    assert "\n" not in text
    return dict(json.loads(text))


def test_extra_fields_are_in_the_line() -> None:
    found = line(resource="chat", queue=3.5, level="mine", odd={1, 2}, much=math.inf)
    assert (found["resource"], found["queue"], found["extra_level"], found["much"]) == ("chat", 3.5, "mine", None)
    assert (found["level"], found["logger"], found["message"], found["odd"]) == ("info", "a", "to b\nand", "{1, 2}")


def test_a_line_without_extra_fields_has_no_others() -> None:
    assert set(line()) == {"time", "level", "logger", "message"}


def test_no_extra_field_is_dropped_or_makes_the_line_invalid() -> None:
    found = line(level=1, extra_level=2, nested={"rate": math.nan, 3: (1, "\udc80")})
    assert (found["extra_level"], found["extra_extra_level"]) == (1, 2)
    assert found["nested"] == {"rate": None, "3": [1, "\udc80"]}


def test_an_exception_and_a_stack_are_in_the_line() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        record = logging.makeLogRecord({"exc_info": sys.exc_info(), "stack_info": "Stack (most recent call last):"})
    found = json.loads(JsonLines().format(record))
    assert found["exception"].endswith("ValueError: odd") and found["stack"].startswith("Stack")


def test_a_decision_is_logged_with_its_numbers(root: logging.Logger) -> None:
    stream = io.StringIO()
    json_logs.configure(stream)
    numbers = (("queue", 12.0), ("replicas_needed", 2.0))
    reason = Reason("replicas", 1, 2, "Queue", "1 → 2 replicas: the queue.", numbers)
    log_decision(KEY, Decision(replicas=2, desired=2, reasons=(reason,)), operator(cluster_with()).context)
    (found,) = (json.loads(text) for text in stream.getvalue().splitlines())
    expected = {"namespace": KEY.namespace, "resource": KEY.name, "dial": "replicas", "reason": "Queue"} | dict(numbers)
    assert found.items() >= expected.items()
    assert found["message"] == f"{KEY.namespace}/{KEY.name}: {reason.sentence}"


def test_a_terminal_gets_plain_lines(root: logging.Logger) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    json_logs.configure(stream)
    logging.getLogger("a").info("one", extra={"resource": "chat"})
    assert stream.getvalue().endswith("INFO a: one\n") and contract.KIND not in stream.getvalue()
