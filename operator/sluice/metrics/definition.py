"""What a metric is: name, type, help text, labels and buckets, as data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Label:
    """A label and its values. No values: they depend on the cluster, and their number is bounded by it."""

    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is that of the contract: a counter's has its `_total`, a histogram's no suffix."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> frozenset[str]:
        """Names under which Prometheus stores the metric."""
        if self.kind != "histogram":
            return frozenset({self.name})
        return frozenset({f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count"})

    def label(self, name: str) -> Label | None:
        """Return the label of this name; None if the metric has none."""
        return next((each for each in self.labels if each.name == name), None)


def counter(name: str, text: str, *labels: Label) -> Metric:
    """Return the definition of a counter."""
    return Metric(name, "counter", text, labels)


def gauge(name: str, text: str, *labels: Label) -> Metric:
    """Return the definition of a gauge."""
    return Metric(name, "gauge", text, labels)


def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Metric:
    """Return the definition of a histogram with these upper bounds."""
    return Metric(name, "histogram", text, buckets=buckets)
