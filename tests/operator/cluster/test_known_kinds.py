"""Optional kinds of a cluster: asked once for minutes, and seen when they are installed."""

from sluice_operator.cluster.known_kinds import KEPT_SECONDS, KnownKinds


async def test_one_answer_serves_all_kinds_of_a_group_until_it_is_old() -> None:
    asked: list[str] = []
    answers = [frozenset[str](), frozenset({"podmonitors"})]
    now = 0.0

    async def read(path: str) -> frozenset[str]:
        asked.append(path)
        return answers[min(len(asked), 2) - 1]

    kinds = KnownKinds(read, lambda: now)
    assert not await kinds.has("/apis/monitoring.coreos.com/v1", "podmonitors")
    assert not await kinds.has("/apis/monitoring.coreos.com/v1", "servicemonitors")
    assert len(asked) == 1
    now = KEPT_SECONDS
    assert await kinds.has("/apis/monitoring.coreos.com/v1", "podmonitors")
    assert len(asked) == 2
