"""`sluice status` against an API server, and the table by itself."""

import json
from typing import Any

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from sluice.cluster.status_table import status_lines
from sluice.cluster.summary import first_sentence, summarise
from tests.cluster.api_server import ApiServer
from tests.cluster.resources import ALL, condition, failing, in_namespace, serving

NO_GPU = "0/4 nodes have a free nvidia.com/gpu. Add a node, or lower spec.scaling.maxReplicas."


def status(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["status", *arguments])
    return result.exit_code, result.output


def test_the_table_has_one_row_and_one_sentence_for_each_deployment(server: ApiServer) -> None:
    server.serve(in_namespace("apps"), failing("search", "Unschedulable", NO_GPU), serving("chat"))
    code, text = status("-n", "apps")
    assert (code, text) == (
        0,
        (
            "NAME    MODEL     READY  PHASE    SLO %  KV %  LIMIT\n"
            "chat    Qwen3-8B    3/3  Serving   99.4    61     48\n"
            "  3 of 3 pods are ready.\n"
            "search  Qwen3-8B    0/1  Failed       –     –      –\n"
            "  Unschedulable: 0/4 nodes have a free nvidia.com/gpu.\n"
        ),
    )


def test_all_namespaces_are_shown_with_their_names(server: ApiServer) -> None:
    server.serve(ALL, serving("chat", "b"), serving("chat", "a"))
    code, text = status("-A")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines() if "Qwen3" in line] == ["a/chat", "b/chat"]


def test_one_deployment_as_json_has_the_fields_of_the_resource(server: ApiServer) -> None:
    server.serve(in_namespace("apps"), serving("chat"))
    code, text = status("chat", "-n", "apps", "-o", "json")
    assert (code, json.loads(text)) == (
        0,
        {
            "namespace": "apps",
            "name": "chat",
            "model": "hf://Qwen/Qwen3-8B@main",
            "readyReplicas": 3,
            "desiredReplicas": 3,
            "phase": "Serving",
            "reason": "Serving",
            "message": "3 of 3 pods are ready.",
            "attainmentPercent": 99.4,
            "kvOccupancyPercent": 61,
            "concurrencyLimit": 48,
            "ttftMilliseconds": 810,
            "itlMilliseconds": 38,
        },
    )
    code, text = status("-n", "apps", "-o", "json")
    assert [each["name"] for each in json.loads(text)["items"]] == ["chat"]


def test_what_is_missing_is_said_with_the_next_step(server: ApiServer) -> None:
    server.serve(in_namespace("apps"))
    assert status("-n", "apps") == (0, "There is no LLMDeployment in namespace apps. See sluice status -A.\n")
    code, text = status("chat", "-n", "apps")
    assert (code, text) == (
        contract.EXIT_FAILED,
        "no LLMDeployment chat in namespace apps: see sluice status -A\n",
    )
    assert status("chat", "-A")[0] == contract.EXIT_USAGE


@pytest.mark.parametrize(("answer", "step"), [(404, "Run sluice check."), (403, "Ask for the view role")])
def test_a_refusal_of_the_api_server_comes_with_a_remedy(server: ApiServer, answer: int, step: str) -> None:
    server.objects[in_namespace("apps")] = answer
    code, text = status("-n", "apps")
    assert code == contract.EXIT_FAILED
    assert f"{answer} the server answers {answer}" in text and step in text


def test_the_table_fits_80_columns_with_the_longest_values() -> None:
    resource = serving("a" * 60, "n" * 30, readyReplicas=1000, desiredReplicas=1000, kvOccupancyPercent=100)
    resource["spec"]["model"]["uri"] = "hf://organisation/" + "M" * 90
    resource["status"]["conditions"][1]["status"] = "True"
    resource["status"]["conditions"][0]["message"] = "word " * 60
    for namespaces in (False, True):
        lines = status_lines([summarise(resource)], 80, namespaces=namespaces)
        assert max(map(len, lines)) <= 80
        assert "1000/1000" in lines[1] and "…" in lines[1]


@pytest.mark.parametrize(
    ("conditions", "ready", "phase", "reason"),
    [
        ([], 0, "Unknown", ""),
        ([condition("Ready", "False", "Fetching", "42 %.")], 0, "Fetching", "Fetching"),
        ([condition("Ready", "False", "Asleep", "Idle.")], 0, "Asleep", "Asleep"),
        ([condition("Ready", "False", "RolloutStalled", "No.")], 2, "Degraded", "RolloutStalled"),
        ([condition("Ready", "False", "EngineCrashed", "No.")], 0, "Failed", "EngineCrashed"),
        ([condition("Ready", "True", "Serving"), condition("Progressing", "True", "X")], 2, "Scaling", "Serving"),
        ([condition("Ready", "True", "Serving"), condition("Paused", "True", "Paused")], 2, "Paused", "Serving"),
        ([condition("Ready", "True", "Serving"), condition("SLOMet", "False", "Missed")], 2, "Serving", "Missed"),
        (
            [condition("Ready", "True", "Serving"), condition("Progressing", "False", "PodsRefused", "Quota.")],
            1,
            "Serving",
            "PodsRefused",
        ),
    ],
)
def test_phase_and_reason_follow_from_the_conditions(
    conditions: list[dict[str, Any]], ready: int, phase: str, reason: str
) -> None:
    found = summarise(serving("chat", conditions=conditions, readyReplicas=ready))
    assert (found.phase, found.reason) == (phase, reason)


def test_a_resource_that_no_operator_has_seen_names_the_command_that_finds_out_why() -> None:
    found = summarise({"metadata": {"name": "chat", "namespace": "apps"}, "spec": {"model": {"uri": "pvc://m/x"}}})
    assert (found.phase, found.desired) == ("Unknown", None)
    assert found.sentence == "No operator has reconciled this resource: run sluice check."


def test_a_resource_that_a_finalizer_holds_is_terminating_and_names_it() -> None:
    resource = serving("chat")
    resource["metadata"] |= {"deletionTimestamp": "2026-11-21T09:00:00Z", "finalizers": ["example.com/hold"]}
    found = summarise(resource)
    assert (found.phase, found.ready) == ("Terminating", 3)
    assert found.sentence == "It is being deleted and waits for the finalizers example.com/hold."


def test_a_sentence_ends_at_its_full_stop_and_not_at_a_decimal_point() -> None:
    assert first_sentence("42 % of 16.1 GB,\n 3 min left. Wait.") == "42 % of 16.1 GB, 3 min left."


def test_characters_of_two_columns_keep_the_table_in_line() -> None:
    wide = serving("chat") | {"spec": {"model": {"uri": "pvc://models/模型"}}}
    long = serving("other") | {"spec": {"model": {"uri": f"pvc://models/{'模型' * 40}"}}}
    first, second = (line for line in status_lines([summarise(each) for each in (wide, long)], 80)[1:] if "3/3" in line)
    assert cell_len(second) <= 80
    assert cell_len(first.partition("3/3")[0]) == cell_len(second.partition("3/3")[0])
