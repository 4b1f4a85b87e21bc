"""The operator's logs: plain lines on a terminal, otherwise JSON lines with every field passed as `extra`."""

import json
import logging
import math
import sys
from typing import Any, Final, TextIO

_OF_EVERY_RECORD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, and its extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line. A field with a name in use gets the prefix `extra_`; NaN and inf become null."""
        line: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        for name, value in record.__dict__.items():
            if name not in _OF_EVERY_RECORD:
                line[f"extra_{name}" if name in line else name] = _finite(value)
        return json.dumps(line, default=str, ensure_ascii=False)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def configure(stream: TextIO | None = None) -> None:
    """Log to `stream` (default: stderr) at level INFO, and Kopf's own records at level WARNING."""
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(plain if stream.isatty() else JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)
