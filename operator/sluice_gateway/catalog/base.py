"""Which models there are, where a cluster says so and not only the replicas that run."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from aiohttp import web

from sluice_gateway.holding import HoldQueue
from sluice_gateway.routing import Routing

AdminHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Catalog(Protocol):
    """The models of a gateway, those without a replica too."""

    def names(self) -> Collection[str] | None:
        """The names that clients may ask for; None while they are not known yet, or only the replicas say which."""

    def entries(self, *, with_keys: bool) -> Mapping[str, dict[str, Any]]:
        """What /v1/models lists of each model while no replica can be asked; `with_keys`: of those that ask for a key too."""

    def needs_key(self, model: str | None) -> bool:
        """Whether the engines of the model ask for a key."""

    def routing(self, model: str | None, default: Routing) -> Routing:
        """How the model's requests are routed; by `default` what its owner does not say."""

    def hold_queue(self, model: str | None) -> HoldQueue:
        """Where requests for the model are held while it has no replica."""

    def held(self) -> int:
        """Requests held for all models."""

    def missing(self) -> str:
        """What the gateway must know before it can serve, a clause; empty once it does."""

    @property
    def admin_routes(self) -> Mapping[str, AdminHandler]:
        """Further paths of the admin port, which always need the token of the release."""
