"""The verdict: noise is no leak, and a leak of each kind is found and named."""

import pytest

from tests.soak.flatness import MEBIBYTE, faults, summary


def samples(count: int = 30, growth: dict[str, float] | None = None) -> list[dict[str, int]]:
    """A server at rest, `growth` per sample; memory has noise."""
    base = {"http bytes": 120 * MEBIBYTE, "http descriptors": 31, "http tasks": 12}
    return [
        {name: int(base[name] + (growth or {}).get(name.split()[1], 0) * n + (n % 3) * MEBIBYTE // 2 * ("bytes" in name)) for name in base}
        for n in range(count)
    ]  # fmt: skip


def test_noise_and_the_filling_of_caches_are_no_growth() -> None:
    given = samples()
    for n in range(10):
        given[n]["http bytes"] -= (10 - n) * 3 * MEBIBYTE
    given[20]["http descriptors"] += 1
    assert faults(given) == []


@pytest.mark.parametrize("kind", ["bytes", "descriptors", "tasks"])
def test_a_leak_is_named(kind: str) -> None:
    found = faults(samples(growth={kind: 0.5 * MEBIBYTE if kind == "bytes" else 0.1}))
    assert len(found) == 1 and found[0].startswith(f"http {kind} grew")


def test_a_run_that_is_too_short_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="six samples"):
        faults(samples(5))


def test_the_summary_has_every_measure() -> None:
    assert summary(samples()) == "http bytes 120.5 → 120.5 MiB, http descriptors 31 → 31, http tasks 12 → 12"
