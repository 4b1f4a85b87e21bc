"""Off a terminal, a log line is a JSON object that carries the fields given as `extra`, in the operator and the engine."""

import io
import json
import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest

from sluice import contract
from sluice_engine.server.logs import JsonLines as EngineJsonLines
from sluice_operator.autoscaler.values import Decision, Reason
from sluice_operator.reconcile.reconcile import _log
from sluice_operator.runtime import logs
from sluice_operator.runtime.logs import JsonLines
from tests.operator.books import KEY, operator, world_with

FORMATTERS: list[type[logging.Formatter]] = [JsonLines, EngineJsonLines]


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger, kopf = logging.getLogger(), logging.getLogger("kopf")
    before = logger.handlers[:], logger.level, kopf.level
    yield logger
    logger.handlers[:] = before[0]
    logger.setLevel(before[1])
    kopf.setLevel(before[2])


def line(formatter: logging.Formatter, **extra: Any) -> dict[str, Any]:
    record = logging.getLogger("a").makeRecord("a", logging.INFO, "file.py", 1, "to %s\nand", ("b",), None, extra=extra)
    text = formatter.format(record)
    assert "\n" not in text
    return dict(json.loads(text))


@pytest.mark.parametrize("kind", FORMATTERS)
def test_extra_fields_are_in_the_line(kind: type[logging.Formatter]) -> None:
    found = line(kind(), resource="chat", queue=3.5, level="mine", odd={1, 2}, much=math.inf)
    assert (found["resource"], found["queue"], found["extra_level"], found["much"]) == ("chat", 3.5, "mine", None)
    assert (found["level"], found["logger"], found["message"], found["odd"]) == ("info", "a", "to b\nand", "{1, 2}")


@pytest.mark.parametrize("kind", FORMATTERS)
def test_a_line_without_extra_fields_has_no_others(kind: type[logging.Formatter]) -> None:
    assert set(line(kind())) == {"time", "level", "logger", "message"}


def test_a_decision_is_logged_with_its_numbers(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure(stream)
    numbers = (("queue", 12.0), ("replicas_needed", 2.0))
    reason = Reason("replicas", 1, 2, "Queue", "1 → 2 replicas: the queue.", numbers)
    _log(KEY, Decision(replicas=2, desired=2, reasons=(reason,)), operator(world_with()))
    (found,) = (json.loads(text) for text in stream.getvalue().splitlines())
    expected = {"namespace": KEY.namespace, "resource": KEY.name, "dial": "replicas", "reason": "Queue"} | dict(numbers)
    assert found.items() >= expected.items()
    assert found["message"] == f"{KEY.namespace}/{KEY.name}: {reason.sentence}"


def test_a_terminal_gets_plain_lines(root: logging.Logger) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    logs.configure(stream)
    logging.getLogger("a").info("one", extra={"resource": "chat"})
    logging.getLogger("kopf").info("of Kopf")
    assert stream.getvalue().endswith("INFO a: one\n") and contract.KIND not in stream.getvalue()
