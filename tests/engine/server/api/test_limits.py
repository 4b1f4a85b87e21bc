"""PATCH /limits: accepted values, and rejected values with their messages."""

from typing import Any

import pytest

from sluice_engine import messages
from sluice_engine.limits import Limits, at_start
from sluice_engine.server.api.limits import applied, as_json, parse_notice, parse_patch
from sluice_engine.server.errors import BadRequest

CURRENT = Limits(concurrency_min=2, concurrency_max=64)


def patch(body: dict[str, Any]) -> messages.LimitsPatch:
    return parse_patch(body, CURRENT, max_num_seqs=128, max_batched_tokens=2048)


def test_a_full_patch_is_converted_to_seconds_and_counts() -> None:
    body = {
        "max_concurrent": {"min": 3, "max": 9}, "max_queue": 0, "max_batched_tokens": 64, "kv_watermark": 0.9,
        "itl_target_ms": 40, "ttft_target_ms": 1500.5, "ttl_seconds": 30,
    }  # fmt: skip
    assert patch(body) == messages.LimitsPatch(
        changes={
            "concurrency_min": 3, "concurrency_max": 9, "max_queue": 0, "max_batched_tokens": 64, "kv_watermark": 0.9,
            "itl_target": 0.04, "ttft_target": 1.5005,
        },
        ttl=30.0,
    )  # fmt: skip


def test_an_empty_patch_changes_nothing() -> None:
    assert patch({}) == messages.LimitsPatch()


def test_a_bound_above_the_buffers_is_lowered_to_them() -> None:
    assert patch({"max_concurrent": {"max": 4096}, "ttl_seconds": 1}).changes == {"concurrency_max": 128}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_queue": 5}, "ttl_seconds"),
        ({"max_queue": None, "ttl_seconds": 5}, "max_queue"),
        ({"max_queue": -1, "ttl_seconds": 5}, "max_queue"),
        ({"max_queue": True, "ttl_seconds": 5}, "max_queue"),
        ({"max_queue": "5", "ttl_seconds": 5}, "max_queue"),
        ({"max_queue": 1, "ttl_seconds": 0}, "ttl_seconds"),
        ({"max_queue": 1, "ttl_seconds": 1e9}, "ttl_seconds"),
        ({"max_queue": 1, "ttl_seconds": "5"}, "ttl_seconds"),
        ({"max_batched_tokens": 0, "ttl_seconds": 5}, "max_batched_tokens"),
        ({"kv_watermark": 0, "ttl_seconds": 5}, "kv_watermark"),
        ({"kv_watermark": 1.01, "ttl_seconds": 5}, "kv_watermark"),
        ({"itl_target_ms": 0, "ttl_seconds": 5}, "itl_target_ms"),
        ({"ttft_target_ms": "x", "ttl_seconds": 5}, "ttft_target_ms"),
        ({"max_concurrent": 5, "ttl_seconds": 5}, "max_concurrent"),
        ({"max_concurrent": {"min": 9, "max": 3}, "ttl_seconds": 5}, "max_concurrent"),
        ({"max_concurrent": {"max": 1}, "ttl_seconds": 5}, "max_concurrent"),
        ({"max_concurrent": {"min": 0}, "ttl_seconds": 5}, "max_concurrent.min"),
        ({"max_concurrent": {"most": 3}, "ttl_seconds": 5}, "max_concurrent.most"),
        ({"max_running": 3, "ttl_seconds": 5}, "max_running"),
        ({"retry_after_seconds": 3}, "ttl_seconds"),
        ({"retry_after_seconds": None, "ttl_seconds": 5}, "retry_after_seconds"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        patch(body)
    assert caught.value.param == param


@pytest.mark.parametrize("seconds", [-1, 1e9, "5", True])
def test_retry_after_seconds_must_be_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_notice({"retry_after_seconds": seconds, "ttl_seconds": 5})
    assert caught.value.param == "retry_after_seconds"


def test_a_patch_without_retry_after_gives_no_notice() -> None:
    assert parse_notice({"max_queue": 4, "ttl_seconds": 5}) is None
    assert parse_notice({"max_queue": 4, "retry_after_seconds": 0, "ttl_seconds": 5}) == (0.0, 5.0)


def test_limits_in_force_have_the_fields_of_the_patch() -> None:
    shown = as_json(at_start(CURRENT))
    assert shown["max_concurrent"] == {"min": 2, "max": 64}
    assert shown["itl_target_ms"] == 50.0
    assert shown["ttl_seconds"] is None
    assert shown["concurrency"] == 64


def test_a_patch_counts_as_applied_once_its_values_and_ttl_are_in_force() -> None:
    wanted = messages.LimitsPatch(changes={"max_queue": 7}, ttl=30.0)
    assert not applied(wanted, at_start(CURRENT))
    assert applied(messages.LimitsPatch(), at_start(CURRENT))


def test_minimum_maximum_and_batched_tokens_are_lowered_to_the_buffers() -> None:
    asked = patch({"max_concurrent": {"min": 1, "max": 999}, "max_batched_tokens": 999_999, "ttl_seconds": 5})
    assert asked.changes == {"concurrency_min": 1, "concurrency_max": 128, "max_batched_tokens": 2048}
