"""Configures the pod's logs: one line per event, plain on a terminal, JSON elsewhere.

Logs never contain a prompt, a key or a raw header.
"""

import logging
import sys
from typing import Final

import orjson

_OF_EVERY_RECORD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, message, and every field given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as a line. A field whose name is in use gets the prefix `extra_`."""
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        for name, value in record.__dict__.items():
            if name not in _OF_EVERY_RECORD:
                line[f"extra_{name}" if name in line else name] = value
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def configure() -> None:
    """Sends logs to stderr, because stdout belongs to the parent process."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S")
    handler.setFormatter(plain if sys.stderr.isatty() else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
