"""The overload figures on examples computed by hand."""

import pytest

from sluice_sim.benchmark.report.overload import fairness_gap, gap_bound
from sluice_sim.cluster.request import RequestRecord


def test_tenants_with_equal_service_have_no_fairness_gap() -> None:
    both = [RequestRecord(0.0, 10, 10, first_at=5.0, ended_at=9.9, tenant=name) for name in "ab"]
    assert fairness_gap(both, 10.0) == pytest.approx(0.0)


def test_the_fairness_gap_counts_service_while_both_tenants_wait() -> None:
    served = [
        RequestRecord(0.0, 10, 1, first_at=2.0, ended_at=2.5, tenant="a"),
        RequestRecord(0.0, 10, 1, first_at=4.0, ended_at=4.5, tenant="a"),
    ]
    waits = [RequestRecord(0.0, 10, 1, first_at=6.0, ended_at=6.5, tenant="b")]
    assert fairness_gap([*served, *waits], 8.0) == pytest.approx(10 + 2)  # the second of a's ends what a has waiting
    assert gap_bound([*served, *waits], pool=100, replicas=3) == 3 * 2 * 2 * 100
