"""The text of a budget."""

import pytest

from sluice_operator.autoscaler.budget.annotation import InvalidBudget, parse_budget


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("nvidia.com/gpu=8", {"nvidia.com/gpu": 8}),
        (" nvidia.com/gpu=8, amd.com/gpu=0 ", {"nvidia.com/gpu": 8, "amd.com/gpu": 0}),
        ("nvidia.com/mig-1g.10gb=14", {"nvidia.com/mig-1g.10gb": 14}),
    ],
)
def test_resources_and_counts_are_read(text: str, limits: dict[str, int]) -> None:
    assert parse_budget(text) == limits


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "''"),
        ("8", "'8'"),
        ("gpu=8", "'gpu=8'"),
        ("nvidia.com/gpu=eight", "eight"),
        ("nvidia.com/gpu=-1", "-1"),
        ("nvidia.com/gpu=1.5", "1.5"),
        ("nvidia.com/gpu=8,", "''"),
        ("nvidia.com/gpu=8;amd.com/gpu=1", "8;amd"),
        ("nvidia.com/gpu=8,nvidia.com/gpu=9", "named twice"),
        ("nvidia.com/gpu=٣", "٣"),
    ],
)
def test_anything_else_is_refused_by_its_part(text: str, part: str) -> None:
    with pytest.raises(InvalidBudget, match=part):
        parse_budget(text)
