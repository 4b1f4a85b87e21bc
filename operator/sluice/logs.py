"""The log format of every process: aligned text on a terminal, otherwise one JSON object per line.

SLUICE_LOG_FORMAT and SLUICE_LOG_LEVEL choose another one. They are environment variables so that the processes that a
command starts read the same choice.
"""

import json
import logging
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, TextIO

import orjson

from sluice.log_context import context_fields

ENV_FORMAT: Final = "SLUICE_LOG_FORMAT"
ENV_LEVEL: Final = "SLUICE_LOG_LEVEL"
FORMATS: Final = ("auto", "text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
FIELDS: Final = "fields"  # logger.info(message, extra={FIELDS: {...}}): each entry is a field of the JSON object
_COLOURS: Final = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}  # ANSI graphic renditions
_COMPONENT_WIDTH: Final = 8
# A value of another type than JSON's is written as its text, a number that is not finite as null.
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
# Attributes that `logging` sets itself; every other attribute of a record comes from `extra`.
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class InvalidLogOption(ValueError):
    """The format or the level is unknown. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The log's format, one of FORMATS, and its lowest level, one of LEVELS."""

    format: str = "auto"
    level: str = "info"

    def __post_init__(self) -> None:
        """Raises InvalidLogOption."""
        if self.format not in FORMATS:
            raise InvalidLogOption(f"--log-format must be one of {', '.join(FORMATS)}; not {self.format!r}.")
        if self.level not in LEVELS:
            raise InvalidLogOption(f"--log-level must be one of {', '.join(LEVELS)}; not {self.level!r}.")


def from_environment(environment: Mapping[str, str] | None = None, *, level: str = "info") -> LogSettings:
    """The settings of the environment (default: os.environ); `level` applies if it names none.

    Raises InvalidLogOption.
    """
    found = os.environ if environment is None else environment
    return LogSettings(found.get(ENV_FORMAT) or "auto", found.get(ENV_LEVEL) or level)


def configure(settings: LogSettings | None = None, stream: TextIO | None = None) -> None:
    """Send all records from the level of `settings` (default: the environment's) to `stream` (default: stderr)."""
    settings = from_environment() if settings is None else settings
    target = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(_CurrentStderr() if stream is None else stream)
    text = settings.format == "text" or (settings.format == "auto" and target.isatty())
    handler.setFormatter(TextLines(colour=has_colour(target)) if text else JsonLines())
    # As Python's documentation of `logging` advises under "Optimization": no format shows a record's place in the source,
    # its thread or its process, and to find them takes a quarter of a line's time.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())


def take_over(*libraries: str) -> None:
    """Send the records of libraries that install handlers of their own, and Python's warnings, to the root handler."""
    logging.captureWarnings(True)
    for name in libraries:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def has_colour(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """True on a terminal that shows colours, unless NO_COLOR is set (no-color.org)."""
    found = os.environ if environment is None else environment
    return stream.isatty() and not found.get("NO_COLOR") and found.get("TERM") != "dumb"


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, every field of the task and of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line. A field whose name is in use gets the prefix `extra_`; NaN and inf become null."""
        line: dict[str, Any] = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        extra = {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
        extra |= extra.pop(FIELDS, {})
        extra = {**context_fields(), **extra}
        for name, value in extra.items():
            line[_unused(name, line)] = value
        try:
            return orjson.dumps(line, default=str, option=_OPTIONS).decode()
        except TypeError:  # an integer beyond 64 bits, deep nesting, or a lone surrogate, which becomes its JSON escape
            text = json.dumps(_json_value(line), ensure_ascii=False, separators=(",", ":"))
            return text.encode("utf-8", "backslashreplace").decode()


class TextLines(logging.Formatter):
    """Formats a record as text in columns: time of day, level, component, message. Tracebacks follow on their own lines."""

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        at = datetime.fromtimestamp(record.created).astimezone()
        head = f"{at:%H:%M:%S}.{record.msecs:03.0f}"
        level, name = f"{record.levelname:<7}", f"{component(record.name):<{_COMPONENT_WIDTH}}"
        text = record.getMessage()
        if self._colour:
            head, name = _painted(head, "2"), _painted(name, "36")
            level = _painted(level, _COLOURS.get(record.levelname, "32"))
        parts = [f"{head} {level} {name} {text}"]
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return "\n".join(parts)


class _CurrentStderr:
    """Writes to sys.stderr as it is at each line: a live table replaces it while it is shown."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def component(logger: str) -> str:
    """The part of Sluice, or the library, that a logger's name begins with: `sluice_operator.x` → operator."""
    first, _, rest = logger.partition(".")
    if first == "sluice":
        return rest.partition(".")[0] or first
    return first.removeprefix("sluice_")


@lru_cache(1)
def _second(seconds: int) -> str:
    """ISO 8601 of Unix seconds, in UTC. Many lines are of one second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]


def _painted(text: str, rendition: str) -> str:
    return f"\x1b[{rendition}m{text}\x1b[0m"


def _unused(name: str, line: dict[str, Any]) -> str:
    while name in line:
        name = f"extra_{name}"
    return name


def _json_value(value: Any, depth: int = 8) -> Any:
    """Return `value` with JSON types only; other types, and values nested deeper than `depth`, as text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth and isinstance(value, dict):
        return {str(key): _json_value(each, depth - 1) for key, each in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_json_value(each, depth - 1) for each in value]
    return str(value)
