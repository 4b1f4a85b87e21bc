"""`sluice up` on a terminal while it downloads, while it serves and when no replica can start; `sluice explain --local`."""

import threading
from pathlib import Path

import pytest

from sluice.up.state_file import StateFile
from sluice_engine.tiny import ensure
from sluice_operator.cluster.client import Key
from tests.hub_server import HubServer
from tests.screens.golden import compare
from tests.screens.terminal import CTRL_C, Terminal

FILE = """\
apiVersion: sluice.dev/v1alpha1
kind: LLMDeployment
metadata: {name: chat}
spec:
  model: {uri: "file:///tmp/sluice-screens/bare"}
  engine: {accelerator: {count: 0}, kvCache: {size: 16Mi}}
"""
STATUS = {
    "readyReplicas": 1,
    "desiredReplicas": 2,
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Serving"},
        {
            "type": "SLOMet", "status": "False", "reason": "Missed",
            "message": "In the last 5 minutes 95.0 % of 412 requests met the SLO; the target is 99 %. The pods are busy.",
        }
    ],
    "decisions": [
        {"time": "2026-11-24T09:00:00Z", "kind": "replicas", "message": "0 → 1 replica: minReplicas is 1."},
        {"time": "2026-11-24T09:10:00Z", "kind": "replicas", "message": "1 → 2 replicas: ITL binds. 41 req/s expected."},
    ],
}  # fmt: skip
MASKS = {
    r"\d\d:\d\d:\d\d": "HH:MM:SS",
    r"replica [0-9a-f]{6}": "replica ######",
    r"sluice-up-\w{8}": "sluice-up-########",
}

# How far a download is when the screen is read, wherever the sentence wraps.
DOWNLOAD = {
    r"downloaded:\s+\d+\s+%\s+of\s+4\.3\s+MB(,\s+\d+\s+(s|min|h)\s+left)?\.": "downloaded: # % of 4.3 MB, # s left.",
}


@pytest.mark.parametrize("columns", [80, 120])
def test_up_with_a_model_that_no_replica_can_load(columns: int) -> None:
    folder = Path("/tmp/sluice-screens")
    bare = folder / "bare"
    bare.mkdir(parents=True, exist_ok=True)
    (bare / "config.json").write_bytes((ensure() / "config.json").read_bytes())
    (folder / "chat.yaml").write_text(FILE)
    with Terminal("up", "chat.yaml", "--port", "0", columns=columns, folder=folder) as terminal:
        assert terminal.finish() == 2
        compare(f"up-fault-{columns}", terminal, MASKS)


@pytest.mark.parametrize("columns", [80, 120])
def test_up_while_the_model_arrives_and_when_it_serves(columns: int, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in ensure().iterdir() if path.is_file()}
    (tmp_path / "chat.yaml").write_text(FILE.replace("file:///tmp/sluice-screens/bare", "hf://org/model"))
    with HubServer(files) as hub:
        hub.stop_at = len(files["model.safetensors"]) // 2
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "SLUICE_CACHE": str(tmp_path / "cache")}
        with Terminal("up", "chat.yaml", "--port", "0", columns=columns, folder=tmp_path, env=env) as terminal:
            terminal.wait_for(r"\nNo replica is ready\. The model is being downloaded: [1-9]")
            compare(f"up-download-{columns}", terminal, MASKS | DOWNLOAD)
            hub.stop_at, stalled = None, hub.released
            hub.released = threading.Event()
            stalled.set()
            terminal.wait_for(r"replicas are loading")
            terminal.wait_for(r"replica \w+ +ready")
            terminal.wait_for(r"1 of 1\s+replicas are ready")
            terminal.wait_for(r"chat +1/1 +0 ")  # the first scrape
            compare(f"up-serving-{columns}", terminal, MASKS | DOWNLOAD)
            terminal.send(CTRL_C)
            assert terminal.finish() == 0


@pytest.mark.parametrize("columns", [80, 120])
def test_explain_local(columns: int, tmp_path: Path) -> None:
    file = StateFile(Key("default", "chat"), tmp_path / "sluice")
    file.write({"metadata": {"name": "chat", "namespace": "default", "resourceVersion": "1"}, "status": STATUS})
    with Terminal("explain", "--local", columns=columns, env={"XDG_RUNTIME_DIR": str(tmp_path)}) as terminal:
        assert terminal.finish() == 0
        compare(f"explain-local-{columns}", terminal)
