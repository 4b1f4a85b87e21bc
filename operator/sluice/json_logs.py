"""The log format of the operator and the engine: plain lines on a terminal, otherwise one JSON object per line."""

import json
import logging
import math
import sys
from typing import Any, Final, TextIO

PLAIN: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Attributes that `logging` sets itself; every other attribute of a record comes from `extra`.
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, and every field passed as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line. A field whose name is in use gets the prefix `extra_`; NaN and inf become null."""
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        for name, value in record.__dict__.items():
            if name not in _STANDARD:
                line[_unused(name, line)] = _json_value(value)
        text = json.dumps(line, ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate becomes its JSON escape


def configure(stream: TextIO | None = None, *, plain: str = PLAIN) -> None:
    """Send all records from level INFO to `stream` (default: stderr). `plain` is the format on a terminal."""
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(plain) if stream.isatty() else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def take_over(*libraries: str) -> None:
    """Send the records of libraries that install handlers of their own, and Python's warnings, to the root handler."""
    logging.captureWarnings(True)
    for name in libraries:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


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
