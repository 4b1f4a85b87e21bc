"""The catalog of a gateway without a cluster: there are the models whose replicas run."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from sluice_gateway.catalog.base import AdminHandler
from sluice_gateway.holding import HoldQueue
from sluice_gateway.routing import Routing

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class RunningModels:
    """One queue holds the requests for all models, and one rule routes them."""

    admin_routes: Mapping[str, AdminHandler] = _NONE

    def __init__(self, hold_queue: HoldQueue) -> None:
        self._hold_queue = hold_queue

    def names(self) -> None:
        """None: the replicas say which models there are."""

    def entries(self, *, with_keys: bool) -> Mapping[str, dict[str, Any]]:
        """No model is known that no replica has."""
        return _NONE

    def needs_key(self, model: str | None) -> bool:
        """False: the engines are not known to ask for a key."""
        return False

    def routing(self, model: str | None, default: Routing) -> Routing:
        """The default."""
        return default

    def hold_queue(self, model: str | None) -> HoldQueue:
        """The one queue."""
        return self._hold_queue

    def held(self) -> int:
        """Requests held for all models."""
        return self._hold_queue.held

    def missing(self) -> str:
        """Nothing: the gateway can serve at once."""
        return ""
