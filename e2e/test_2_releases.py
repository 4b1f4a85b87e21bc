"""Part 2, continued: a second release in the same namespace."""

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, run, wait_for
from e2e.operator_pod import Operator
from e2e.settings import Settings


@pytest.fixture
def second(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[Operator]:
    """A second release in the namespace of the first one, which watches a namespace of its own."""
    watched = f"{settings.release}-watched"
    second = Operator(cluster, settings, name=f"{settings.release}-two")
    run("kubectl", "create", "namespace", watched)
    try:
        second.install(f"watchNamespace={watched}")
        yield second
    finally:
        second.uninstall()
        run("kubectl", "delete", "namespace", watched, "--wait=false")


def test_two_releases_in_one_namespace_both_lead(operator: Operator, second: Operator) -> None:
    wait_for("the second release leads", second.leads, timeout=30)
    assert operator.leads()
    assert second.restarts() == 0
