"""The cost of one decision in function calls, the same on every machine; `make bench` measures its milliseconds."""

from collections.abc import Callable

import pytest

from tests.bench.scheduling.deciding import calls, slowest, usual
from tests.operator.autoscaler.fleet import Story

MOST_CALLS = 6_000  # 64 replicas; 4,700 take 3 ms of a processor
MOST_PER_REPLICA = 60


@pytest.mark.parametrize("kind", [usual, slowest])
def test_a_decision_for_64_replicas_is_cheap_and_each_replica_adds_little(kind: Callable[[int], Story]) -> None:
    few, many = calls(kind(8)), calls(kind(64))
    assert many <= MOST_CALLS
    assert many - few <= MOST_PER_REPLICA * 56
