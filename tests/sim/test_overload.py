"""What overload is judged by, by hand."""

import pytest

from sluice_law.steptime import StepTimeModel
from sluice_sim.record import Record
from sluice_sim.score import request_seconds
from sluice_sim.tracks.overload import capacity_bound, fairness_gap, gap_bound

MODEL = StepTimeModel(base=0.01, prefill_token=0.001)


def test_the_capacity_bound_is_what_fits_into_the_time_until_the_last_is_due() -> None:
    records = [Record(0.001 * k, 1000, 2) for k in range(100)]  # all at once, 1 s of prompt each
    each = request_seconds(MODEL, 1000, 2, 256)
    bound = capacity_bound(records, MODEL, itl=0.1, ttft=2.0, most=256, replicas=2)
    assert bound == int(2 * (1.099 + 2.0 + 0.2) / each)
    assert capacity_bound(records, MODEL, 0.1, 2.0, 256, replicas=1000) == 100
    assert capacity_bound([], MODEL, 0.1, 2.0, 256, 1) == 0


def test_tenants_that_are_served_alike_have_no_gap() -> None:
    both = [Record(0.0, 10, 10, first_at=5.0, ended_at=9.9, tenant=name) for name in "ab"]
    assert fairness_gap(both, 10.0) == pytest.approx(0.0)


def test_the_gap_is_what_one_tenant_got_while_both_waited() -> None:
    served = [
        Record(0.0, 10, 1, first_at=2.0, ended_at=2.5, tenant="a"),
        Record(0.0, 10, 1, first_at=4.0, ended_at=4.5, tenant="a"),
    ]
    waits = [Record(0.0, 10, 1, first_at=6.0, ended_at=6.5, tenant="b")]
    assert fairness_gap([*served, *waits], 8.0) == pytest.approx(10 + 2)  # the second of a's ends what a has waiting
    assert gap_bound([*served, *waits], pool=100, replicas=3) == 3 * 2 * 2 * 100
