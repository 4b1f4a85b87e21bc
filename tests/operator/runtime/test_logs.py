"""Off a terminal, a log line is a JSON object that carries the fields given as `extra`, in the operator and the engine."""

import asyncio
import io
import json
import logging
import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from kopf._cogs.clients import watching
from typer.testing import CliRunner

from sluice import contract, logs
from sluice.cli import app
from sluice.logs import FIELDS, JsonLines, LogSettings, TextLines, component
from sluice_operator.autoscaler.values import Decision, Reason
from sluice_operator.cluster.client import Key
from sluice_operator.reconcile.reconciler import log_decision
from sluice_operator.runtime.process import limit_kopf_logs
from sluice_operator.runtime.workqueue import Workers
from tests.operator.fake_cluster import KEY, cluster_with, operator


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    before = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = before[0]
    logger.setLevel(before[1])


@pytest.fixture
def kopf_logs(root: logging.Logger) -> Iterator[logging.Logger]:
    """The logger of Kopf's watches, whose level and that of Kopf are restored."""
    both = logging.getLogger("kopf"), watching.logger
    before = [logger.level for logger in both]
    yield watching.logger
    for logger, level in zip(both, before, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_of_kopf_only_its_watches_are_logged_below_a_warning(
    root: logging.Logger, kopf_logs: logging.Logger, level: int
) -> None:
    root.setLevel(level)
    limit_kopf_logs()
    assert kopf_logs.isEnabledFor(logging.DEBUG) == (level == logging.DEBUG)
    assert not logging.getLogger("kopf.objects").isEnabledFor(logging.INFO)


def line(**extra: Any) -> dict[str, Any]:
    record = logging.getLogger("a").makeRecord("a", logging.INFO, "file.py", 1, "to %s\nand", ("b",), None, extra=extra)
    text = JsonLines().format(record)
    assert "\n" not in text
    return dict(json.loads(text))


def test_extra_fields_are_in_the_line() -> None:
    found = line(resource="chat", queue=3.5, level="mine", odd={1, 2}, much=math.inf)
    assert (found["resource"], found["queue"], found["extra_level"], found["much"]) == ("chat", 3.5, "mine", None)
    assert (found["level"], found["logger"], found["message"], found["odd"]) == ("info", "a", "to b\nand", "{1, 2}")


async def test_the_lines_of_a_pass_name_its_resource() -> None:
    lines: dict[str, dict[str, Any]] = {}
    both_run = asyncio.Barrier(2)

    async def reconcile(key: Key) -> float:
        await both_run.wait()
        lines[key.name] = line(namespace="mine") if key.name == "b" else line()
        return math.inf

    workers = Workers(reconcile)
    for name in ("a", "b"):
        workers.wake(Key("ns", name))
    await asyncio.gather(*workers._tasks.values())
    assert (lines["a"]["namespace"], lines["a"]["resource"]) == ("ns", "a")
    assert (lines["b"]["namespace"], lines["b"]["resource"]) == ("mine", "b")
    assert "resource" not in line()


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
    logs.configure(stream=stream)
    numbers = (("queue", 12.0), ("replicas_needed", 2.0))
    reason = Reason("replicas", 1, 2, "Queue", "1 → 2 replicas: the queue.", numbers)
    log_decision(KEY, Decision(replicas=2, desired=2, reasons=(reason,)), operator(cluster_with()).context)
    (found,) = (json.loads(text) for text in stream.getvalue().splitlines())
    expected = {"namespace": KEY.namespace, "resource": KEY.name, "dial": "replicas", "reason": "Queue"} | dict(numbers)
    assert found.items() >= expected.items()
    assert found["message"] == f"{KEY.namespace}/{KEY.name}: {reason.sentence}"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_named_fields_need_no_prefix() -> None:
    found = line(**{FIELDS: {"name": "chat", "level": "mine"}})
    assert (found["name"], found["extra_level"], FIELDS in found) == ("chat", "mine", False)


@pytest.mark.parametrize(
    ("chosen", "terminal", "is_text"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("json", True, False),
        ("text", False, True),
    ],
)
def test_the_format_follows_the_choice_or_the_terminal(
    root: logging.Logger, chosen: str, terminal: bool, is_text: bool
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    logs.configure(LogSettings(chosen), stream)
    logging.getLogger("sluice_operator.runtime").info("one", extra={"resource": "chat"})
    text = stream.getvalue()
    assert text.endswith("one\n") == is_text and text.startswith("{") != is_text
    assert ("chat" in text) != is_text and contract.KIND not in text


def test_text_is_aligned_and_coloured_only_where_the_terminal_can() -> None:
    record = logging.makeLogRecord({"name": "sluice.up.loop", "levelname": "INFO", "msg": "one", "msecs": 7.4})
    plain = TextLines().format(record)
    assert plain[8:] == ".007 INFO    up       one"
    assert TextLines(colour=True).format(record).replace("one", "").count("\x1b[0m") == 3
    assert logs.has_colour(Terminal(), {})
    assert not any(logs.has_colour(Terminal(), {name: value}) for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")))
    assert not logs.has_colour(io.StringIO(), {})


@pytest.mark.parametrize(
    ("logger", "name"),
    [("sluice.server", "server"), ("sluice", "sluice"), ("sluice_engine.core.x", "engine"), ("aiohttp.web", "aiohttp")],
)
def test_a_line_names_the_part_that_wrote_it(logger: str, name: str) -> None:
    assert component(logger) == name


def test_the_level_is_the_lowest_that_is_written(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure(LogSettings("json", "warning"), stream)
    logging.getLogger("a").info("one")
    logging.getLogger("a").warning("two")
    assert [json.loads(each)["message"] for each in stream.getvalue().splitlines()] == ["two"]


@pytest.mark.parametrize("option", ["--log-format", "--log-level"])
def test_an_unknown_choice_is_one_sentence_with_the_choices(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (logs.ENV_FORMAT, logs.ENV_LEVEL):
        monkeypatch.setenv(name, "")  # restores what the command sets for its child processes
    result = CliRunner().invoke(app, ["serve", "model", option, "loud"])
    assert result.exit_code == contract.EXIT_USAGE
    assert result.output.startswith(f"{option} must be one of") and result.output.count("\n") == 1
