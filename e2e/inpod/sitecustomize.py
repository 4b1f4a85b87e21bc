"""A fault for an engine whose PYTHONPATH has this folder: each request for an answer ends with 500."""

from typing import Any, NoReturn

from sluice_engine.server.engine.client import EngineClient, EngineFailed


def _fail(*_: Any, **__: Any) -> NoReturn:
    raise EngineFailed


EngineClient.submit = _fail  # type: ignore[method-assign]
