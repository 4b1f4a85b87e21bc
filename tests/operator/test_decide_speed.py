"""One decision for 64 replicas takes at most 5 ms of a processor, also when it is the slowest kind."""

from tests.bench.deciding import deciding


def test_a_decision_for_64_replicas_is_quick() -> None:
    found = deciding(repeats=9)
    assert found.usual <= 0.005
    assert found.worst <= 0.005
