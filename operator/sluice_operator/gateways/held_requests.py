"""The requests that all gateways hold, per LLMDeployment. A gateway that is lost holds none."""

from collections.abc import Callable, Mapping

from sluice_operator.cluster.client import Key


class HeldRequests:
    """Sums over gateways. `on_change(key)` is called when a sum becomes 0 or is no longer 0."""

    def __init__(self) -> None:
        self.on_change: Callable[[Key], None] = lambda _: None
        self._counts: dict[str, Mapping[Key, int]] = {}

    def held(self, key: Key) -> int:
        """Requests that are held until this LLMDeployment has a replica."""
        return sum(counts.get(key, 0) for counts in self._counts.values())

    def report(self, gateway: str, counts: Mapping[Key, int]) -> None:
        """The gateway holds these now, and no others."""
        keys = {*counts, *self._counts.get(gateway, ())}
        before = {key for key in keys if self.held(key)}
        self._counts[gateway] = dict(counts)
        for key in sorted(keys):
            if bool(self.held(key)) != (key in before):
                self.on_change(key)

    def forget(self, gateway: str) -> None:
        """The gateway is gone, or cannot be read."""
        self.report(gateway, {})
        self._counts.pop(gateway, None)
