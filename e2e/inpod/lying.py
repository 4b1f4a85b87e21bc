"""A fault for an engine whose PYTHONPATH has this file as sitecustomize.py: /tmp/lie names what its /metrics answers."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sluice import contract
from sluice_engine.server.metrics import EngineMetrics

_LIE: Final = Path("/tmp/lie")
_true = EngineMetrics.render


def _with(metric: str, value: str) -> Callable[[bytes], bytes]:
    series = re.compile(rf"(?m)^({metric}) .*$".encode())
    return lambda text: series.sub(rb"\1 " + value.encode(), text)


_LIES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "NaN": _with(contract.REQUESTS_RUNNING, "NaN"),
    "huge": _with(contract.KV_OCCUPANCY_RATIO, "1e300"),
    "garbage": lambda _: b"<html>" * 1000,
}


def _render(self: EngineMetrics) -> bytes:
    text = _true(self)
    return _LIES[_LIE.read_text().strip()](text) if _LIE.exists() else text


EngineMetrics.render = _render  # type: ignore[method-assign]
