"""Makes the client library's objects of the definitions. Series of known label values exist from the first scrape, so
that no rate starts from a missing series."""

from itertools import product

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sluice.metrics import Metric, by_name


def create_counter(name: str, registry: CollectorRegistry) -> Counter:
    """Return the counter of this name, registered. Raises KeyError for a name without a definition."""
    metric = by_name(name)
    made = Counter(metric.name, metric.text, _label_names(metric), registry=registry)
    _touch(made, metric)
    return made


def create_gauge(name: str, registry: CollectorRegistry) -> Gauge:
    """Return the gauge of this name, registered. Raises KeyError for a name without a definition."""
    metric = by_name(name)
    made = Gauge(metric.name, metric.text, _label_names(metric), registry=registry)
    _touch(made, metric)
    return made


def create_histogram(name: str, registry: CollectorRegistry) -> Histogram:
    """Return the histogram of this name, registered. Raises KeyError for a name without a definition."""
    metric = by_name(name)
    return Histogram(metric.name, metric.text, buckets=metric.buckets, registry=registry)


def _label_names(metric: Metric) -> list[str]:
    return [label.name for label in metric.labels]


def _touch(made: Counter | Gauge, metric: Metric) -> None:
    if metric.labels and all(label.values for label in metric.labels):
        for values in product(*(label.values for label in metric.labels)):
            made.labels(*values)
