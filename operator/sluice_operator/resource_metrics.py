"""Metrics per LLMDeployment, from its status: replicas, conditions and failed passes.

The number of series is bounded: a deleted resource has none, and above a number of resources the younger ones share one
set of series. Its namespace and name are `_other`, which no Kubernetes object can have.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sluice import contract
from sluice.metrics import by_name

OTHER: Final = ("_other", "_other")
CONDITIONS: Final = ("Available", "Ready")
_REPLICAS: Final = {"desired": "desiredReplicas", "ready": "readyReplicas"}

Name = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class ResourceSample:
    """What the status of one LLMDeployment reports. Both mappings have the same keys for every resource."""

    name: Name
    created: str
    replicas: Mapping[str, int]
    conditions: Mapping[str, int]  # 1 where the condition is True


def sample_of(document: Mapping[str, Any]) -> ResourceSample:
    """The sample of a resource as the API server returns it. A figure without a value is 0."""
    metadata, status = document["metadata"], document.get("status") or {}
    true = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
    return ResourceSample(
        name=(str(metadata.get("namespace", "")), str(metadata["name"])),
        created=str(metadata.get("creationTimestamp", "")),
        replicas={state: int(status.get(field) or 0) for state, field in _REPLICAS.items()},
        conditions={kind: int(kind in true) for kind in CONDITIONS},
    )


def bounded(samples: Iterable[ResourceSample], most: int) -> Iterator[ResourceSample]:
    """The `most` oldest resources, and one sum of the others: the resources with their own series rarely change."""
    ordered = sorted(samples, key=lambda each: (each.created, each.name))
    yield from ordered[:most]
    if rest := ordered[most:]:
        yield ResourceSample(
            OTHER, "", _sum([each.replicas for each in rest]), _sum([each.conditions for each in rest])
        )


def _sum(parts: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    return {key: sum(each[key] for each in parts) for key in parts[0]}


class ResourceMetrics(Collector):
    """The newest samples, as series of a registry."""

    def __init__(self, most: int) -> None:
        """`most`: number of resources with series of their own."""
        self._most = most
        self._samples: dict[Name, ResourceSample] = {}
        self._failed: Counter[Name] = Counter()

    def observed(self, document: Mapping[str, Any]) -> None:
        """Replace the sample of a resource."""
        sample = sample_of(document)
        self._samples[sample.name] = sample

    def forgotten(self, namespace: str, name: str) -> None:
        """A deleted resource has no series, and one of the same name starts anew."""
        self._samples.pop((namespace, name), None)
        self._failed.pop((namespace, name), None)

    def failed(self, namespace: str, name: str) -> None:
        """Count one failed pass over a resource."""
        self._failed[namespace, name] += 1

    def collect(self) -> Iterator[Metric]:
        """The series of all samples."""
        replicas = GaugeMetricFamily(*_described(contract.OPERATOR_RESOURCE_REPLICAS))
        conditions = GaugeMetricFamily(*_described(contract.OPERATOR_RESOURCE_CONDITION))
        failures = CounterMetricFamily(*_described(contract.OPERATOR_RESOURCE_FAILURES))
        samples = tuple(bounded(self._samples.values(), self._most))
        own = {each.name for each in samples}
        for sample in samples:
            for state, count in sample.replicas.items():
                replicas.add_metric([*sample.name, state], count)
            for kind, count in sample.conditions.items():
                conditions.add_metric([*sample.name, kind], count)
            failures.add_metric(sample.name, self._failures(sample.name, own))
        yield from (replicas, conditions, failures)

    def _failures(self, name: Name, own: set[Name]) -> int:
        if name != OTHER:
            return self._failed[name]
        return sum(count for each, count in self._failed.items() if each not in own)


def _described(name: str) -> tuple[str, str, None, list[str]]:
    """The first arguments of a metric family: name, help text, no value, names of the labels."""
    metric = by_name(name)
    return metric.name.removesuffix("_total"), metric.text, None, [label.name for label in metric.labels]
