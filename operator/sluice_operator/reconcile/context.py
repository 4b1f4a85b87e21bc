"""What every reconcile pass needs from outside: clients, settings, clocks, metrics. Nothing here changes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import ClusterClient, Key, Object
from sluice_operator.engines.client import Scraper
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.model_check import ModelChecks
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.render.names import admin_secret
from sluice_operator.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """Dependencies of the reconciler."""

    cluster: ClusterClient
    scraper: Scraper
    settings: Settings = field(default_factory=Settings)
    # The operator's key. Admin tokens are derived from it; an empty key makes that fail.
    token_key: bytes = field(default=b"", repr=False)
    old_keys: tuple[bytes, ...] = field(default=(), repr=False)  # before it; some pods may still mount their tokens
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = lambda: datetime.now(UTC)
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    models: ModelChecks | None = None  # None: models are not checked before there are pods

    def key_of(self, name: str, uid: str, secret: str) -> bytes:
        """Return the key whose token the admin Secret of this name holds: the newest unless an older one fits.

        name, uid: of the LLMDeployment. secret: empty if it is not known.
        """
        fits = (key for key in self.old_keys if secret and uid and admin_secret(name, derive(key, uid)) == secret)
        return next(fits, self.token_key)

    def timestamp(self) -> str:
        """Return the current time in the format of RFC 3339."""
        return self.wall().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Target:
    """The resource of one pass, as stored and as types."""

    key: Key
    document: Object
    resource: LLMDeployment
