"""A fleet of fast replicas, and thousands of short requests of official clients to its Service and to the gateway."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from e2e.framework import images, jobs, manifests
from e2e.framework.cluster import Cluster, Object, is_ready, name_of, say, wait_for
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings
from sluice import contract

NAME = "busy"
CLIENTS = 12  # of each of the two loads
AT_MOST = 1800  # seconds of a load
# 12 tokens with ten requests at once take half a second, so that two cores bear all clients of both loads.
PACE = "base=0.02,sequence=0.002,prefill_token=0.0001,kv_token=1e-6"
DRAIN_SECONDS = 120


@dataclass(frozen=True)
class Fleet:
    """The resource `busy` and the release that manages it."""

    cluster: Cluster
    operator: Operator
    settings: Settings

    def start(self, name: str, requests: int = 10**6) -> list[jobs.Load]:
        """A load of the Service and one of the gateway, with so many requests each."""
        urls = {name: f"http://{NAME}.{self.cluster.namespace}.svc:8000", f"{name}-routed": self.operator.gateway_url}
        image, options = images.make_client(self.settings), (CLIENTS, AT_MOST, requests, "opening")
        return [jobs.start_official(self.cluster, each, image, NAME, url, *options) for each, url in urls.items()]

    def serving(self) -> list[Object]:
        """The pods that are ready and not being deleted."""
        return [pod for pod in self.cluster.pods(NAME) if is_ready(pod)]

    def names(self) -> set[str]:
        """The names of all its pods."""
        return {name_of(pod) for pod in self.cluster.pods(NAME)}

    def change(self, **spec: object) -> None:
        """Merge fields into the spec."""
        self.cluster.patch("llmd", NAME, {"spec": spec})

    def scale(self, count: int) -> None:
        """Ask for so many replicas, and wait until they serve and no other pod is left."""
        self.change(replicas=count)
        self.settle(count)

    def settle(self, count: int, without: set[str] | None = None) -> None:
        """Wait until `count` pods serve, none of them of `without`, and no other pod is left. Raises TimedOut."""

        def is_settled() -> bool:
            pods = self.cluster.pods(NAME)
            return len(pods) == count and all(map(is_ready, pods)) and self.names().isdisjoint(without or ())

        wait_for(f"{count} pods and no other", is_settled, timeout=400)

    def value(self, pod: Object, metric: str) -> float:
        """A metric of one pod; 0 if it does not answer."""
        return self.cluster.metrics(name_of(pod)).get(metric, 0.0)


@contextmanager
def fleet(cluster: Cluster, operator: Operator, settings: Settings, replicas: int) -> Iterator[Fleet]:
    """The fleet from its creation to its end. No law changes its count and its limits."""
    env = [{"name": contract.ENV_PACE, "value": PACE}, {"name": contract.ENV_THREADS, "value": "1"}]
    spec = {
        "engine": manifests.engine(template={"env": env}),
        "admission": {"mode": "Fixed", "concurrency": {"min": 4, "max": 64}},
        "scaling": {"mode": "External"},
        "rollout": {"drainSeconds": DRAIN_SECONDS},
    }
    cluster.apply(manifests.llm_deployment(NAME, **spec, replicas=replicas))
    made = Fleet(cluster, operator, settings)
    made.settle(replicas)
    yield made
    cluster.kubectl("delete", "llmd", NAME, "--timeout=200s", timeout=220)


def check(loads: list[jobs.Load], what: str, began: float, least: int) -> None:
    """End the loads and print what they saw: no request failed, of `least` in each load. `began`: monotonic seconds."""
    accounts = [load.finish(timeout=300) for load in loads]
    failed = [failure for account in accounts for failure in account["failed"]]
    requests = [account["requests"] for account in accounts]
    say(f"{what}: {sum(requests)} requests, {len(failed)} failed, {time.monotonic() - began:.0f} s")
    assert failed == []
    assert min(requests) >= least
