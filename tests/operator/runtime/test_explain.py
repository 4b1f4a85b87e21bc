"""`sluice explain`: the status as sentences, on the command itself with an API server that returns one resource."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from sluice.cluster.reader import Reader, deployments_path
from sluice_kube import api
from sluice_operator.autoscaler.values import ForecastStatus
from sluice_operator.status.estimates import forecast_fields

READY = {"type": "Ready", "status": "True", "reason": "Serving", "message": "3 of 3 pods are ready."}
DECISION = {"time": "2026-11-21T09:00:00Z", "kind": "replicas", "from": 1, "to": 2, "reason": "Queue"}


def explain(monkeypatch: pytest.MonkeyPatch, resource: dict[str, Any] | None, *options: str) -> tuple[int, list[str]]:
    """The exit status and the printed lines of `sluice explain chat -n ns`."""

    async def connect() -> nullcontext[None]:
        return nullcontext()

    async def find(_reader: Reader, path: str) -> dict[str, Any] | None:
        assert path == deployments_path("ns", "chat")
        return resource

    monkeypatch.setattr(api, "connect", connect)
    monkeypatch.setattr(Reader, "__init__", lambda self, client: None)
    monkeypatch.setattr(Reader, "find", find)
    result = CliRunner().invoke(app, ["explain", "chat", "-n", "ns", *options])
    return result.exit_code, result.output.splitlines()


def test_it_prints_conditions_and_decisions_as_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    slo = {"type": "SLOMet", "status": "False", "reason": "Missed", "message": "95 % were good."}
    status = {
        "readyReplicas": 1,
        "desiredReplicas": 2,
        "conditions": [READY, slo],
        "decisions": [DECISION | {"message": "1 → 2 replicas: the queue."}, DECISION],
    }
    assert explain(monkeypatch, {"status": status}) == (
        0,
        [
            "1/2 replicas ready. Serving",
            "SLOMet=False (Missed): 95 % were good.",
            "2026-11-21T09:00:00Z  1 → 2 replicas: the queue.",
            "2026-11-21T09:00:00Z  1 → 2 replicas: Queue.",
            "The autoscaler has no estimate of the load yet, because no engine has returned metrics.",
        ],
    )


def test_it_says_why_some_replicas_do_not_start_although_others_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = {"type": "Progressing", "status": "False", "reason": "PodsRefused", "message": "exceeded quota."}
    counts = {"readyReplicas": 1, "desiredReplicas": 2}
    _, lines = explain(monkeypatch, {"status": counts | {"conditions": [READY, stuck]}})
    assert lines[1] == "Progressing=False (PodsRefused): exceeded quota."
    settled = stuck | {"reason": "Settled"}
    failed = READY | {"status": "False", "reason": "PodsRefused"}
    for conditions in ([READY, settled], [failed, stuck]):
        _, lines = explain(monkeypatch, {"status": counts | {"conditions": conditions}})
        assert not any("Progressing" in line for line in lines)


def test_a_program_gets_the_sentences_and_what_they_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"readyReplicas": 1, "desiredReplicas": 2, "conditions": [READY], "decisions": [DECISION], "replicas": 2}
    resource = {"metadata": {"namespace": "ns", "name": "chat", "uid": "1"}, "status": status}
    code, lines = explain(monkeypatch, resource, "-o", "json")
    found = json.loads("\n".join(lines))
    assert code == 0
    assert found.pop("sentences")[:2] == [
        "1/2 replicas ready. Serving",
        "2026-11-21T09:00:00Z  1 → 2 replicas: Queue.",
    ]
    status.pop("replicas")
    assert found == {"namespace": "ns", "name": "chat"} | status


def test_a_resource_that_no_operator_reconciles_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain(monkeypatch, {}) == (0, ["No operator has reconciled this resource. Check that one is running."])
    code, lines = explain(monkeypatch, None)
    assert code == contract.EXIT_FAILED
    assert lines == ["no LLMDeployment chat in namespace ns: see sluice status -A"]


@pytest.mark.parametrize(
    ("predicted", "attained", "compared"),
    [
        (0.9931, 0.9864, "predicted 99.3 % good requests for the replicas that were ready; 98.6 % were good"),
        (0.9996, 1.0, "predicted 99.96 % good requests for the replicas that were ready; 100.0 % were good"),
    ],
)
def test_it_compares_the_prediction_with_what_happened(
    monkeypatch: pytest.MonkeyPatch, predicted: float, attained: float, compared: str
) -> None:
    found = forecast_lines(monkeypatch, ForecastStatus(20.0, 1.0, 3, predicted, attained, 1.0))
    assert found[0] == f"In the last hour, the replay {compared} (target 99 %)."


def test_it_says_when_nothing_could_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    found = forecast_lines(monkeypatch, ForecastStatus(20.0, 1.0, 3, None, None, 1.0))
    assert found[0] == "No request of the last hour could be compared with the replay of the engines' shadow queues."


@pytest.mark.parametrize(
    ("model_error", "growth", "planned"),
    [
        (1.004, 1.0, "the load as measured"),
        (1.12, 1.0, "1.12 times the load, because more requests missed the SLO than the replay predicted"),
        (
            1.0,
            1.3,
            "the load as measured, and for growth by a factor of 1.30 until a replica created now would be ready",
        ),
    ],
)
def test_it_gives_the_load_that_is_planned_for_and_why(
    monkeypatch: pytest.MonkeyPatch, model_error: float, growth: float, planned: str
) -> None:
    found = forecast_lines(monkeypatch, ForecastStatus(20.0, growth, 3, 0.99, 0.98, model_error))
    assert found[1:] == [f"The autoscaler plans for {planned}."]


def forecast_lines(monkeypatch: pytest.MonkeyPatch, forecast: ForecastStatus) -> list[str]:
    """What is printed after the decisions."""
    counts = {"readyReplicas": 3, "desiredReplicas": 3}
    status = counts | {"conditions": [READY], "forecast": forecast_fields(forecast)}
    resource = {"spec": {"slo": {"attainmentPercent": "99"}}, "status": status}
    code, lines = explain(monkeypatch, resource)
    assert code == 0
    assert lines[:2] == ["3/3 replicas ready. Serving", "No decision yet: no change was needed."]
    return lines[2:]
