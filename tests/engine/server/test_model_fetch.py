"""`sluice serve hf://…`: the ports answer during the download, its faults are shown, and it heals without a restart."""

from pathlib import Path

import orjson

from sluice_engine.pulled import is_held
from sluice_engine.sources import cached_models
from tests.engine.serving import CHAT, Served, answers, body, poll, start
from tests.hub_server import COMMIT, HubServer

URI = "hf://org/model"


def environment(url: str, home: Path) -> dict[str, str]:
    return {
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_TOKEN": "",
        "HF_HUB_OFFLINE": "",
        "HF_TOKEN_PATH": str(home / "token"),
    }


def readyz(served: Served) -> dict[str, object]:
    return dict(orjson.loads(served.admin("GET", "/readyz").body))


def test_a_refused_download_says_why_and_continues_when_access_is_given(tiny_model: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in tiny_model.iterdir() if path.is_file()}
    with HubServer(files) as hub:
        hub.token, hub.stop_at = "secret", len(files["model.safetensors"]) // 2
        options = ("--fetch-errors", "retry", "--cache", str(tmp_path / "cache"))
        served = start(URI, tmp_path / "log", *options, env=environment(hub.url, tmp_path))
        try:
            poll(lambda: answers(served, "/readyz", 503) and "problem" in readyz(served), 60, served.log)
            assert readyz(served)["problem"]["reason"] == "SecretNotFound"  # type: ignore[index]
            (tmp_path / "token").write_text("another")
            poll(lambda: readyz(served)["problem"]["reason"] == "ModelAccessDenied", 60, served.log)  # type: ignore[index]
            (tmp_path / "token").write_text("secret")
            assert hub.reached.wait(60)
            poll(lambda: " % of " in str(readyz(served).get("load")), 60, served.log)
            poll(lambda: "problem" not in readyz(served), 60, served.log)  # with the first bytes of the new attempt
            assert answers(served, "/livez", 200)
            assert served.request("POST", CHAT, body(1)).error["code"] == "loading"
            hub.released.set()
            poll(lambda: answers(served, "/readyz", 200), 60, served.log)
            assert readyz(served)["revision"] == COMMIT
            assert served.request("POST", CHAT, body(4, stream=False)).status == 200
            assert served.metric("sluice_load_phase_seconds", phase="fetch") > 0
            (folder,) = (model.folder for model in cached_models(tmp_path / "cache"))
            assert is_held(folder)  # `sluice model rm` refuses to remove it
        finally:
            served.process.kill()
            served.process.wait(60)


def test_a_pinned_revision_is_served_after_the_branch_has_moved(tiny_model: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in tiny_model.iterdir() if path.is_file()}
    pin = tmp_path / "revision.json"
    pin.write_bytes(orjson.dumps({"uri": URI, "revision": COMMIT}))
    with HubServer(files) as hub:
        hub.moved = True
        (tmp_path / "token").write_text("any")
        options = ("--cache", str(tmp_path / "cache"), "--revision-file", str(pin))
        served = start(URI, tmp_path / "log", *options, env=environment(hub.url, tmp_path))
        try:
            poll(lambda: answers(served, "/readyz", 200), 60, served.log)
            assert f'revision="{COMMIT}"' in served.admin("GET", "/metrics").body.decode()
        finally:
            served.process.kill()
            served.process.wait(60)


def test_without_retries_a_wrong_revision_ends_the_process_with_a_sentence(tmp_path: Path) -> None:
    with HubServer({}) as hub:
        (tmp_path / "token").write_text("any")
        served = start(f"{URI}@v9", tmp_path / "log", "--cache", str(tmp_path), env=environment(hub.url, tmp_path))
        assert served.process.wait(60) == 78
        assert "org/model has no revision v9" in served.log.read_text()
