"""Reference counts and the prefix index of the KV pool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.kvcache.block_pool import BlockPool, chain_hash, extend_hashes


def chain(*blocks: list[int]) -> list[bytes]:
    hashes: list[bytes] = []
    for tokens in blocks:
        hashes.append(chain_hash(hashes[-1] if hashes else None, tokens))
    return hashes


def test_a_hash_names_the_whole_prefix() -> None:
    assert chain([1, 2], [3, 4])[1] != chain([9, 2], [3, 4])[1]
    assert chain([1, 2], [3, 4]) == chain([1, 2], [3, 4])
    assert chain([1], [23])[1] != chain([1], [2, 3])[1]


def test_allocation_is_all_or_nothing() -> None:
    pool = BlockPool(3, 16)
    held = pool.allocate(2)
    with pytest.raises(MemoryError, match="2 KV blocks asked, 1 available"):
        pool.allocate(2)
    assert (pool.held, pool.cached, pool.free) == (2, 0, 1)
    pool.check([held])


def test_a_released_block_is_found_again_until_it_is_evicted() -> None:
    pool = BlockPool(2, 2)
    hashes = chain([1, 2], [3, 4])
    table = pool.allocate(2)
    for block, digest in zip(table, hashes, strict=True):
        pool.index(block, digest)
    pool.release(table)
    assert pool.match(hashes) == table
    assert (pool.held, pool.cached, pool.free) == (0, 2, 0)
    pool.allocate(1)
    assert pool.match(hashes) == table[:1]  # the tail went first


def test_a_block_that_is_held_is_never_evicted() -> None:
    pool = BlockPool(2, 2)
    hashes = chain([1, 2])
    table = pool.allocate(1)
    pool.index(table[0], hashes[0])
    pool.release(table)
    pool.acquire(pool.match(hashes))
    assert not pool.can_allocate(2)
    other = pool.allocate(1)
    pool.check([table, other])


def test_the_least_recently_used_prefix_is_evicted_first() -> None:
    pool = BlockPool(2, 2)
    old, new = chain([1, 2]), chain([3, 4])
    for digest in (old[0], new[0]):
        table = pool.allocate(1)
        pool.index(table[0], digest)
        pool.release(table)
    hit = pool.match(old)
    pool.acquire(hit)
    pool.release(hit)  # used again: now the other one is oldest
    pool.allocate(1)
    assert pool.match(old) and not pool.match(new)


def test_a_second_copy_of_the_same_content_is_freed_not_cached() -> None:
    pool = BlockPool(2, 2)
    digest = chain([1, 2])[0]
    first, second = pool.allocate(1), pool.allocate(1)
    pool.index(first[0], digest)
    pool.index(second[0], digest)
    pool.release(second)
    pool.release(first)
    assert (pool.cached, pool.free) == (1, 1)


def test_invalid_content_is_removed_from_the_index() -> None:
    pool = BlockPool(1, 2)
    digest = chain([1, 2])[0]
    table = pool.allocate(1)
    pool.index(table[0], digest)
    assert pool.release(table, forget=True) == table
    assert pool.match([digest]) == [] and pool.free == 1


def test_check_notices_a_leak_and_a_foreign_table() -> None:
    pool = BlockPool(2, 2)
    table = pool.allocate(1)
    with pytest.raises(RuntimeError, match="1 references counted, 0 in tables"):
        pool.check([])
    with pytest.raises(RuntimeError, match="1 references counted, 2 in tables"):
        pool.check([table, table])


@given(st.integers(1, 8), st.lists(st.tuples(st.sampled_from("arhd"), st.integers(0, 7)), max_size=60))
def test_block_counts_add_up_after_any_history(size: int, history: list[tuple[str, int]]) -> None:
    pool = BlockPool(size, 1)
    tables: list[list[int]] = []
    for act, number in history:
        hashes = chain(*([number, depth] for depth in range(number % 4 + 1)))
        if act == "a" and pool.can_allocate(number):
            tables.append(pool.allocate(number))
            for block, digest in zip(tables[-1], hashes, strict=False):
                pool.index(block, digest)
        elif act == "h":
            hit = pool.match(hashes)
            pool.acquire(hit)
            tables.append(hit)
        elif tables:
            pool.release(tables.pop(number % len(tables)), forget=act == "d")
        pool.check(tables)
        assert pool.held + pool.cached + pool.free == size


def test_chains_of_two_tenants_share_no_identity() -> None:
    chains: list[list[bytes]] = []
    for tenant in ("", "a", "b", "a"):
        chain: list[bytes] = []
        extend_hashes(chain, range(64), 16, tenant)
        chains.append(chain)
    assert chains[1] == chains[3]
    assert len({digest for chain in chains[:3] for digest in chain}) == 12
