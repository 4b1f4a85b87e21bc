"""The models and replicas of the cluster as last seen. It is changed by watches and read by every request."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from sluice import contract
from sluice_gateway.cluster.canaries import canaries_in
from sluice_gateway.cluster.cannot_start import PATIENCE
from sluice_gateway.cluster.endpoints import Endpoint, ready_endpoints
from sluice_gateway.cluster.models import ServedModel, oldest_by_name, served_model
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.routing import Canary

Objects = Mapping[tuple[str, str], Mapping[str, Any]]  # by namespace and name

log = logging.getLogger("sluice.gateway")


class Directory:
    """`models` has the models by the name that clients ask for, those without a replica too."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # key of a model and why it cannot start → when that was seen first
        self._since: dict[tuple[str, str], float] = {}
        self.models: dict[str, ServedModel] = {}
        self._found: dict[str, list[ServedModel]] = {}  # by the namespace of the watch, "" for all
        self._parsed: dict[tuple[str, str], tuple[str, ServedModel]] = {}  # with its resourceVersion
        self._endpoints: dict[str, list[Endpoint]] = {}
        self._trials: dict[str, dict[tuple[str, str], Canary]] = {}  # by the namespace of the watch
        self._canaries: dict[str, Canary] = {}  # by the model's name
        self._refused: dict[str, str] = {}
        self._backends: tuple[Backend, ...] = ()
        self._zone = ""

    def backends(self) -> tuple[Backend, ...]:
        """The ready replicas of the served models."""
        return self._backends

    def canaries(self) -> Mapping[str, Canary]:
        """The canary revisions by the model's name."""
        return self._canaries

    def set_deployments(self, watched: str, objects: Objects) -> None:
        """The LLMDeployments that the watch of namespace `watched` has seen."""
        self._found[watched] = [self._model(each) for each in objects.values()]
        present = {(model.namespace, model.resource) for models in self._found.values() for model in models}
        self._parsed = {key: parsed for key, parsed in self._parsed.items() if key in present}
        served, refused = oldest_by_name(model for models in self._found.values() for model in models)
        for key in refused.keys() - self._refused.keys():
            log.warning("LLMDeployment %s is not served here: %s", key, refused[key])
        self.models, self._refused = served, refused
        found = {(model.key, model.cannot_start) for model in served.values() if model.cannot_start}
        self._since = {each: self._since.get(each, self._clock()) for each in found}
        self._combine()

    def set_slices(self, watched: str, objects: Objects) -> None:
        """The EndpointSlices that the watch of namespace `watched` has seen."""
        self._endpoints[watched] = ready_endpoints(objects.values())
        self._trials[watched] = canaries_in(objects.values())
        self._combine()

    def set_zone(self, zone: str) -> None:
        """The zone of this gateway; "" while it is not known, so that no replica counts as further away."""
        if zone != self._zone:
            self._zone = zone
            self._combine()

    def start_seconds(self, model: str | None) -> float | None:
        """Measured seconds from zero to a ready replica; None if there is no such model or no measurement."""
        found = self.models.get(model or "")
        return None if found is None else found.start_seconds

    def cannot_start(self, name: str) -> str:
        """Why the model can get no replica, one CamelCase word; "" if it may start."""
        model = self.models.get(name)
        if model is None or not model.cannot_start:
            return ""
        lasts = self._clock() - self._since[model.key, model.cannot_start]
        return model.cannot_start if lasts >= PATIENCE.get(model.cannot_start, 0.0) else ""

    def _model(self, document: Mapping[str, Any]) -> ServedModel:
        """The document as a model, parsed once: of a thousand documents one event changes one."""
        metadata = document["metadata"]
        key, version = (metadata["namespace"], metadata["name"]), str(metadata["resourceVersion"])
        if self._parsed.get(key, ("", None))[0] != version:
            self._parsed[key] = version, served_model(document)
        return self._parsed[key][1]

    def _combine(self) -> None:
        models = {(model.namespace, model.resource): model for model in self.models.values()}
        names = {key: model.name for key, model in models.items()}
        self._backends = tuple(
            self._backend(endpoint, models[endpoint.namespace, endpoint.resource])
            for endpoints in self._endpoints.values()
            for endpoint in endpoints
            if (endpoint.namespace, endpoint.resource) in models
        )
        self._canaries = {
            names[key]: canary for trials in self._trials.values() for key, canary in trials.items() if key in names
        }

    def _backend(self, endpoint: Endpoint, model: ServedModel) -> Backend:
        name, admin_url = f"{endpoint.namespace}/{endpoint.pod}", f"http://{endpoint.host}:{contract.ADMIN_PORT}"
        other_zone = bool(self._zone and endpoint.zone) and endpoint.zone != self._zone
        return Backend(name, endpoint.host, endpoint.port, admin_url, model.name, other_zone, model.uid)
