"""The prefix cache against an independent LRU over a real trace."""

from tests.bench.scheduling import hit_ratio


def test_the_hit_ratio_is_an_lrus_at_every_capacity() -> None:
    found = hit_ratio.measure()
    assert [each.capacity for each in found] == [0.05, 0.20, 0.50]
    for each in found:
        assert each.apart < hit_ratio.MOST_APART
        assert each.engine > (1 - hit_ratio.MOST_APART) * each.lru_of_all_ids
    assert 0.15 < found[0].engine < found[1].engine < found[2].engine < 0.45


def test_the_lru_itself_evicts_the_least_recent_tail_first() -> None:
    assert hit_ratio.lru_hits([(1, 2, 3), (1, 2, 3)], 3) == 3
    assert hit_ratio.lru_hits([(1, 2, 3), (9,), (1, 2, 3)], 3) == 2  # 3 was evicted
    assert hit_ratio.lru_hits([(1, 2), (3, 4), (1, 2), (5, 6), (1, 2)], 4) == 4
