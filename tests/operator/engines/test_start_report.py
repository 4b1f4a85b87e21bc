"""What the operator reads from an engine that fetches its model, and shows in the conditions."""

from dataclasses import replace

import pytest

from sluice_operator.autoscaler.values import PodView, StartReport
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod
from sluice_operator.cluster.pod_status import Problem
from sluice_operator.engines.start_report import read
from sluice_operator.status.conditions import conditions
from sluice_operator.status.facts import Facts
from sluice_operator.status.rollout import Rollout

FETCHING = ObservedPod(view=PodView(name="chat-1", phase="loading", since=0.0), progress="42 % of 16.1 GB, 3 min left")


@pytest.mark.parametrize(
    ("body", "report"),
    [
        (b'{"status":"loading","load":{"phase":"fetch","text":"42 % of 16.1 GB"}}', StartReport("42 % of 16.1 GB")),
        (
            b'{"problem":{"reason":"ModelAccessDenied","message":"a\\nb"}}',
            StartReport("", "ModelAccessDenied", "a b"),
        ),
        (b'{"problem":{"reason":"Invented","message":""}}', StartReport()),
        (b'{"problem":{"reason":"SecretInvalid","message":"a"}}', StartReport("", "SecretInvalid", "a")),
        (
            b'{"load":{"phase":"load","text":"42 % of 16.1 GB at 2.1 GB/s, 5 s left"}}',
            StartReport(loaded="42 % of 16.1 GB at 2.1 GB/s, 5 s left"),
        ),
        (b"[]", None),
        (b"<html>", None),
    ],
)
def test_only_known_reasons_and_printable_text_are_read(body: bytes, report: StartReport | None) -> None:
    assert read(body) == report


def states(pod: ObservedPod) -> dict[str, dict[str, str]]:
    facts = Facts(generation=1, fleet=ObservedFleet(deployment={}, pods=(pod,)), rollout=Rollout())
    return {entry["type"]: entry for entry in conditions(facts, "2026-01-01T00:00:00Z")}


def test_the_conditions_show_the_progress_of_the_download() -> None:
    for kind in ("Ready", "ModelLoaded"):
        shown = states(FETCHING)[kind]
        assert (shown["status"], shown["reason"]) == ("False", "Fetching")
        assert "42 % of 16.1 GB, 3 min left" in shown["message"]


def test_the_conditions_show_the_progress_of_the_load() -> None:
    loading = replace(FETCHING, progress="", loaded="42 % of 16.1 GB at 2.1 GB/s, 5 s left")
    for kind, reason in (("Ready", "Starting"), ("ModelLoaded", "Loading")):
        shown = states(loading)[kind]
        assert (shown["status"], shown["reason"]) == ("False", reason)
        assert "42 % of 16.1 GB at 2.1 GB/s, 5 s left." in shown["message"]


def test_a_failed_download_is_the_reason_with_a_next_step() -> None:
    refused = replace(FETCHING, progress="", problem=Problem("ModelAccessDenied", "org/name is gated."))
    shown = states(refused)["Ready"]
    assert shown["reason"] == "ModelAccessDenied"
    assert "org/name is gated." in shown["message"] and "tokenSecretRef" in shown["message"]
