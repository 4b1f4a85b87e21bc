"""`sluice top`: rows from two passes, the loop with a clock of the test, and the command against an API server."""

import asyncio
import base64
import json
import signal
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from sluice.cluster.summary import summarise
from sluice.cluster.top import watch as loop
from sluice.cluster.top.rows import Row, rows, top_lines
from sluice.cluster.top.scrape import Pass
from sluice_kube.api import collection
from sluice_kube.errors import ClusterError
from sluice_operator.engines.exposition import parse
from tests.cluster.api_server import ApiServer
from tests.cluster.resources import in_namespace, serving
from tests.operator.fake_cluster import exposition

PODS = collection("v1", "pods", "apps")


def metrics(running: float, tokens: float, kv: float = 0.5, blocks: float = 100) -> str:
    values = {"requests_running": running, "requests_waiting": 2.0, "kv_occupancy_ratio": kv}
    values['kv_blocks{state="free"}'] = blocks
    return exposition(**values) + f"{contract.GENERATED_TOKENS} {tokens}\n"


def at(seconds: float, **pods: str) -> Pass:
    """A pass over one deployment with these pods, by uid."""
    samples = {uid: parse(text) for uid, text in pods.items()}
    return Pass(seconds, (summarise(serving("chat")),), {("apps", "chat"): samples}, ())


def test_requests_are_summed_and_tokens_are_a_rate_between_two_passes() -> None:
    before = at(10.0, a=metrics(3, 1000), b=metrics(4, 5000))
    now = at(14.0, a=metrics(5, 1400, kv=0.2), b=metrics(6, 5200, kv=0.8, blocks=300))
    (row,) = rows(before, now)
    assert (row.running, row.waiting, row.kv_percent, row.tokens_per_second) == (11, 4, 65, 150.0)
    assert (row.ttft_ms, row.attainment_percent) == (810, 99.4)  # of the status


def test_a_restarted_engine_counts_from_zero_and_a_new_one_not_yet() -> None:
    before = at(10.0, a=metrics(3, 1000))
    (row,) = rows(before, at(20.0, a=metrics(3, 50), new=metrics(1, 9000)))
    assert row.tokens_per_second == 5.0


def test_without_metrics_the_status_is_shown_and_the_rest_is_unknown() -> None:
    (row,) = rows(at(1.0), at(2.0))
    assert (row.running, row.waiting, row.tokens_per_second, row.kv_percent) == (None, None, None, 61)
    lines = top_lines([row], ["pod chat-1: 401 Unauthorized"], 80)
    assert lines[1].split() == ["chat", "3/3", "–", "–", "61", "810", "99.4", "–"]
    assert lines[2] == "The metrics of 1 pod are missing: pod chat-1: 401 Unauthorized"


def test_the_table_fits_80_columns_with_the_longest_values() -> None:
    row = Row("n" * 60, "a" * 60, 1000, 1000, 256000, 99999, 100, 120000, 99.9, 9999999.0)
    lines = top_lines([row], ["x " * 200], 80, namespaces=True)
    assert max(map(len, lines)) <= 80
    assert lines[1].split()[1:] == ["1000/1000", "256000", "99999", "100", "120000", "99.9", "9999999"]


class Shown:
    """What was shown, and a clock that a test stops."""

    def __init__(self, *passes: Pass | ClusterError, sleeps: int = 0) -> None:
        self.passes = list(passes)
        self.sleeps = sleeps
        self.tables: list[tuple[float | None, Sequence[str]]] = []

    async def read(self) -> Pass:
        found = self.passes.pop(0)
        if isinstance(found, ClusterError):
            raise found
        return found

    async def sleep(self) -> None:
        self.sleeps -= 1
        if self.sleeps < 0:
            raise KeyboardInterrupt

    def show(self, found: Sequence[Row], faults: Sequence[str]) -> None:
        self.tables.append((found[0].tokens_per_second, faults))


async def test_once_shows_the_second_pass_only_since_a_rate_needs_two() -> None:
    shown = Shown(at(1.0, a=metrics(1, 0)), at(3.0, a=metrics(1, 100)), sleeps=1)
    await loop.watch(shown.read, shown.show, shown.sleep, once=True)
    assert (shown.tables, shown.sleeps) == ([(50.0, ())], 0)


async def test_an_api_server_that_is_away_for_a_pass_leaves_the_last_table_with_the_fault() -> None:
    away = ClusterError("GET /pods: 503")
    shown = Shown(at(1.0, a=metrics(1, 0)), away, at(5.0, a=metrics(1, 100)), sleeps=2)
    with pytest.raises(KeyboardInterrupt):
        await loop.watch(shown.read, shown.show, shown.sleep, once=False)
    assert shown.tables == [(None, ()), (None, ("GET /pods: 503",)), (25.0, ())]
    with pytest.raises(ClusterError):
        await loop.watch(Shown(away).read, shown.show, shown.sleep, once=False)


def serve_pods(server: ApiServer, answer: str | int) -> None:
    server.serve(in_namespace("apps"), serving("chat"))
    labels = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: "chat"}
    pods = [
        {
            "metadata": {"name": f"chat-{state}", "namespace": "apps", "uid": state, "labels": labels},
            "status": {"conditions": [{"type": "Ready", "status": state}]},
        }
        for state in ("True", "False")
    ]
    server.serve(PODS, *pods)
    server.objects[f"{PODS}/chat-True:8001/proxy/metrics"] = answer


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes follow each other at once."""
    monkeypatch.setattr(loop, "pause", lambda _: asyncio.sleep(0))


@pytest.mark.usefixtures("no_wait")
def test_the_command_reads_ready_pods_through_the_proxy_of_the_api_server(server: ApiServer) -> None:
    serve_pods(server, metrics(7, 1000))
    result = CliRunner().invoke(app, ["top", "-n", "apps", "--once"])
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [
            "NAME  READY  RUN  WAIT  KV %  TTFT ms  SLO %  TOKENS/S",
            "chat    3/3    7     2    50      810   99.4         0",
        ],
    )
    assert not any("chat-False" in each for each in server.asked)


@pytest.mark.usefixtures("no_wait")
def test_a_program_gets_the_rows_and_the_faults(server: ApiServer) -> None:
    serve_pods(server, 403)
    result = CliRunner().invoke(app, ["top", "-n", "apps", "--once", "-o", "json"])
    found = json.loads(result.output)
    assert (result.exit_code, found["items"][0]["readyReplicas"], found["items"][0]["running"]) == (0, 3, None)
    assert "403" in found["faults"][0]


def serve_pods_that_ask(server: ApiServer, token: str) -> str:
    """Pods with the volume of the token of reads; return the path of its Secret."""
    serve_pods(server, metrics(7, 1000))
    volume = {"name": contract.READ_VOLUME, "secret": {"secretName": "chat-0123456789-read"}}
    for pod in server.objects[PODS]["items"]:
        pod["spec"] = {"volumes": [volume]}
    server.tokens[f"{PODS}/chat-True:8001/proxy/metrics"] = token
    return "/api/v1/namespaces/apps/secrets/chat-0123456789-read"


@pytest.mark.usefixtures("no_wait")
def test_metrics_that_need_a_token_are_read_with_that_of_the_pods_secret(server: ApiServer) -> None:
    secret = serve_pods_that_ask(server, "r34d")
    server.objects[secret] = {"data": {"token": base64.b64encode(b"r34d").decode()}}
    result = CliRunner().invoke(app, ["top", "-n", "apps", "--once", "-o", "json"])
    found = json.loads(result.output)
    assert (found["items"][0]["running"], found["faults"], "r34d" in result.output) == (7, [], False)


@pytest.mark.usefixtures("no_wait")
def test_a_secret_that_may_not_be_read_is_named_beside_the_rows(server: ApiServer) -> None:
    secret = serve_pods_that_ask(server, "r34d")
    server.objects[secret] = 403
    result = CliRunner().invoke(app, ["top", "-n", "apps", "--once", "-o", "json"])
    (fault,) = json.loads(result.output)["faults"]
    assert result.exit_code == 0 and fault.startswith("chat-True: its metrics need a token") and secret in fault


def test_ctrl_c_ends_it_without_a_trace(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_pods(server, metrics(7, 1000))

    async def interrupted(_: float) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(loop, "pause", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # an earlier test may have left another one
    try:
        result = CliRunner().invoke(app, ["top", "-n", "apps"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.exit_code == 0
    assert result.output.count("NAME") == 1 and "Traceback" not in result.output
