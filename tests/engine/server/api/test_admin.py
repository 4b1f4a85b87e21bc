"""The admin port: writes require the token, limits expire with their TTL, POST /drain does not exit."""

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sluice import contract
from sluice_gateway.replicas.load import parse_load
from tests.engine.serving import CHAT, JSON, Answer, Reader, Served, body, gone, poll, refused, serving


@pytest.fixture(scope="module")
def guarded(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text("s3cret\n")
    options = ("--admin-token-file", str(folder / "token"), "--concurrency-max", "32", "--max-num-seqs", "64")
    with serving(tiny_model, folder / "log", *options) as served:
        yield served
        engine = served.engine_pid()
        served.process.kill()  # without the HTTP process, the engine process must exit
        served.process.wait(60)
        poll(lambda: gone(engine), 60, served.log)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "s3cret"},
        {"Authorization": "Basic s3cret"},
        {"Authorization": "Bearer s3cret\xe9"},
    ],
)
def test_a_write_without_the_token_is_401(guarded: Served, headers: dict[str, str]) -> None:
    for method, path in (("PATCH", "/limits"), ("POST", "/drain"), ("PATCH", "/limits?token=s3cret")):
        answer = guarded.admin(method, path, b"{}", JSON | headers)
        assert answer.status == 401
        assert answer.error["type"] == "authentication_error"
    assert guarded.admin("GET", "/readyz").status == 200


def test_the_load_document_describes_the_replica(guarded: Served) -> None:
    answer = guarded.request("POST", CHAT, body(4, stream=False))
    assert answer.headers["x-sluice-prompt-tokens"] == str(answer.json()["usage"]["prompt_tokens"])
    published = guarded.admin("GET", "/load")
    load = published.json()
    assert parse_load(published.body).kv_total == load["kv_total_tokens"]  # as a gateway reads it
    assert (load["model"], load["phase"], load["ready"]) == ("tiny", "serving", True)
    assert (load["running"], load["waiting"], load["prefill_tokens"]) == (0, 0, 0)
    assert load["output_tokens"] > 0
    assert 0 < load["limit"] <= 32
    assert 0 == load["kv_held_tokens"] < load["kv_total_tokens"]
    assert load["step_model"] is None or set(load["step_model"]) == set(contract.STEP_MODEL_TERMS)


def test_a_patch_changes_the_limits_until_its_ttl_ends(guarded: Served) -> None:
    token = JSON | {"Authorization": "Bearer s3cret"}
    before = guarded.admin("GET", "/limits").json()
    assert before["max_concurrent"] == {"min": 1, "max": 32}
    patch = {"max_concurrent": {"min": 2, "max": 6}, "max_queue": 9, "itl_target_ms": 80, "ttl_seconds": 60}
    answer = guarded.admin("PATCH", "/limits", patch, token)
    assert answer.status == 200
    now = answer.json()
    assert (now["max_concurrent"], now["max_queue"]) == ({"min": 2, "max": 6}, 9)
    assert now["itl_target_ms"] == pytest.approx(80)
    assert 0 < now["ttl_seconds"] <= 60
    assert 2 <= now["concurrency"] <= 6
    assert guarded.metric("sluice_admission_limit", kind="concurrency_max") == 6
    guarded.admin("PATCH", "/limits", patch | {"ttl_seconds": 0.5}, token)
    guarded.wait(lambda: guarded.admin("GET", "/limits").json()["max_concurrent"] == before["max_concurrent"])
    assert guarded.admin("GET", "/limits").json()["ttl_seconds"] is None


def test_a_bad_patch_is_400_with_a_sentence(guarded: Served) -> None:
    token = JSON | {"Authorization": "Bearer s3cret"}
    answer = guarded.admin("PATCH", "/limits", {"max_queue": 4}, token)
    assert (answer.status, answer.error["param"]) == (400, "ttl_seconds")
    assert guarded.admin("PATCH", "/limits", b"[]", token).status == 400
    assert guarded.admin("DELETE", "/limits", None, token).status == 405


def test_requests_beyond_the_queue_are_rejected_with_retry_after(guarded: Served) -> None:
    token = JSON | {"Authorization": "Bearer s3cret"}
    guarded.admin("PATCH", "/limits", {"max_concurrent": {"max": 1}, "max_queue": 0, "ttl_seconds": 150}, token)
    rejected = guarded.metric("sluice_rejections_total", reason="queue_full")
    readers = [Reader(guarded, body(300)) for _ in range(6)]
    for reader in readers:
        reader.join(150)
    refusals = [reader for reader in readers if reader.status == 503]
    assert refusals
    assert all(json.loads(reader.text)["error"]["code"] == "queue_full" for reader in refusals)
    assert any(reader.last_event == b"data: [DONE]" for reader in readers)
    assert guarded.metric("sluice_rejections_total", reason="queue_full") == rejected + len(refusals)


def test_a_request_of_higher_priority_evicts_a_waiting_one(guarded: Served) -> None:
    token = JSON | {"Authorization": "Bearer s3cret"}
    guarded.admin("PATCH", "/limits", {"max_concurrent": {"max": 1}, "max_queue": 2, "ttl_seconds": 150}, token)
    displaced = guarded.metric("sluice_rejections_total", reason="displaced")
    rejected = guarded.metric("sluice_requests_total", outcome="rejected")
    with ThreadPoolExecutor(7) as pool:

        def ask(priority: int, count: int, stream: bool) -> list[Future[Answer]]:
            asked = body(300, stream=stream) | {"priority": priority, "n": 1 if stream else 2}
            return [pool.submit(guarded.request, "POST", CHAT, asked) for _ in range(count)]

        long = pool.submit(guarded.request, "POST", CHAT, body(1200))  # the other requests wait while this one runs
        guarded.wait(lambda: guarded.metric("sluice_requests_running") == 1)
        low = ask(-1, 2, stream=True) + ask(-1, 2, stream=False)
        guarded.wait(lambda: guarded.metric("sluice_requests_waiting") >= 2)
        high = [future.result(150) for future in ask(1, 2, stream=True)]
        answers = [future.result(150) for future in low]
        assert long.result(150).status == 200
    assert [answer.status for answer in high] == [200, 200]
    gone = [answer for answer in answers if answer.status == 503 and answer.error["code"] == "displaced"]
    assert gone
    for answer in gone:
        assert "higher priority" in answer.error["message"]
        assert answer.error["type"] == "service_unavailable"
        assert int(answer.headers["retry-after"]) >= 1
    others = sum(answer.status == 503 for answer in answers) - len(gone)
    assert guarded.metric("sluice_rejections_total", reason="displaced") == displaced + len(gone)
    assert guarded.metric("sluice_requests_total", outcome="rejected") == rejected + len(gone) + others


def test_post_drain_turns_unready_then_rejects_and_stays_alive(guarded: Served) -> None:
    with closing(HTTPConnection("127.0.0.1", guarded.port, timeout=60)) as pooled:
        pooled.request("GET", "/v1/models")
        pooled.getresponse().read()
        answer = guarded.admin("POST", "/drain", b"", {"Authorization": "Bearer s3cret"})
        assert answer.status == 202
        assert guarded.admin("GET", "/readyz").status == 503
        guarded.wait(lambda: refused(guarded))
        pooled.request("GET", "/v1/models")
        closing_answer = pooled.getresponse()
        closing_answer.read()
        assert closing_answer.getheader("Connection") == "close"
    assert guarded.admin("GET", "/livez").status == 200
    assert guarded.process.poll() is None
