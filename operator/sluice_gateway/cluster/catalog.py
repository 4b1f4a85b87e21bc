"""The catalog of a gateway in a cluster: its models, and the requests held for each of them."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from sluice import contract
from sluice_gateway.catalog.base import AdminHandler
from sluice_gateway.cluster.directory import Directory
from sluice_gateway.cluster.held_feed import HeldFeed
from sluice_gateway.holding import HoldQueue
from sluice_gateway.routing import Routing

USUAL_START: Final = 60.0  # seconds, of a model that has not been measured; as the operator's law expects
LEAST_HOLD: Final = 60.0  # seconds: on a busy node a start of 6 s took more than 10


class ClusterCatalog:
    """A `Catalog` over the directory. Requests are held per model, so that the operator starts the right one."""

    def __init__(self, directory: Directory, missing: Callable[[], str]) -> None:
        """`missing()` is what the directory still lacks, a clause; empty once it is complete."""
        self._directory = directory
        self._missing = missing
        self._queues: dict[str, HoldQueue] = {}
        self._without_model = HoldQueue()
        self.feed = HeldFeed(self._held_by_resource)

    def names(self) -> Collection[str] | None:
        """The names of all models; None before the first list."""
        return None if self._missing() else self._directory.models

    def entries(self, *, with_keys: bool) -> Mapping[str, dict[str, Any]]:
        """The list entry of each model; of models that ask for a key only `with_keys`."""
        models = self._directory.models
        return {name: model.entry for name, model in models.items() if with_keys or not model.needs_key}

    def needs_key(self, model: str | None) -> bool:
        """Whether the engines of the model ask for a key."""
        name = self._named(model)
        return name is not None and self._directory.models[name].needs_key

    def routing(self, model: str | None, default: Routing) -> Routing:
        """`spec.routing` of the model as last seen; by `default` what it does not set."""
        found = self._directory.models.get(model or "")
        if found is None:
            return default
        return Routing(found.policy or default.policy, found.session_header or default.session_header)

    def hold_queue(self, model: str | None) -> HoldQueue:
        """The queue of the model; one that holds nothing for a name that no model has."""
        name = self._named(model)
        if name is None:
            return self._without_model
        if name not in self._queues:
            self._queues = {known: queue for known, queue in self._queues.items() if self._keeps(known, queue)}
            self._queues[name] = HoldQueue(
                hold=True,
                expected=lambda: self._directory.start_seconds(name) or USUAL_START,
                on_change=self.feed.changed,
                least=LEAST_HOLD,
                cannot_start=lambda: self._directory.cannot_start(name),
            )
        return self._queues[name]

    def held(self) -> int:
        """Requests held for all models."""
        return sum(queue.held for queue in self._queues.values())

    def missing(self) -> str:
        """What the directory still lacks, a clause; empty once it is complete."""
        return self._missing()

    @property
    def admin_routes(self) -> Mapping[str, AdminHandler]:
        """The feed that the operator reads."""
        return {contract.PATH_HELD: self.feed.serve}

    def _named(self, model: str | None) -> str | None:
        """The model that a request is for; one that names none is for the only one."""
        models = self._directory.models
        if model is None and len(models) == 1:
            return next(iter(models))
        return model if model in models else None

    def _keeps(self, name: str, queue: HoldQueue) -> bool:
        return bool(queue.held) or name in self._directory.models

    def _held_by_resource(self) -> dict[str, int]:
        models = self._directory.models
        return {models[name].key: queue.held for name, queue in self._queues.items() if queue.held and name in models}
