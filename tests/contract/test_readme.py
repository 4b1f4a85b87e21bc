"""Every code block of the README is run: here, by .ci/run, or by the story on a cluster (e2e/test_4_readme.py)."""

import http.client
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from sluice_operator import render
from sluice_operator.api import parse
from sluice_sim.traces.prometheus.series import COUNTERS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FRONT_DOOR = 8080


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """The lines of a shell block without their comments."""
    lines = (re.sub(r"\s+#.*$", "", line).strip() for line in block.splitlines())
    return [line for line in lines if line]


def run(command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """One line of the README, with this interpreter's own environment for `.venv`."""
    here = command.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    return subprocess.run(["bash", "-c", here], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def test_each_block_is_run_somewhere() -> None:
    shell = blocks("bash")
    assert len(shell) == 7, "a new block: run it here, in .ci/run or in e2e, then count it"
    ci = (ROOT / ".ci/run").read_text()
    assert all(line in ci for line in commands(shell[0]))  # the two commands
    real = (ROOT / "e2e/demo/real_model.py").read_text()  # the demo runs these lines, because they download
    assert commands(shell[1])[0] == "make install"
    assert all(f"`{line.split()[0].rpartition('/')[2]} {line.split()[1]}" in real for line in commands(shell[1])[1:])
    assert all(".venv/bin/sluice" in line for line in commands(shell[2]) + commands(shell[3]))  # below
    assert "helm install" in shell[4]  # e2e/test_4_readme.py
    assert (ROOT / "e2e/test_4_readme.py").exists()
    assert all(".venv/bin/sluice simulate" in line for line in commands(shell[5])) and "curl" in shell[6]  # below


def test_the_resource_of_the_readme_is_valid_and_renders() -> None:
    (example,) = blocks("yaml")
    resource = parse(yaml.safe_load(example))
    assert resource.served_name == "chat"
    kinds = [
        child["kind"]
        for child in render.children(resource, defaults=render.PodDefaults("engine:1"), replicas=1, token="t")
    ]
    assert "Deployment" in kinds


@pytest.mark.parametrize("sample", sorted((ROOT / "crds/samples").glob("*.yaml")), ids=lambda path: path.name)
def test_the_samples_are_valid(sample: Path) -> None:
    documents = [d for d in yaml.safe_load_all(sample.read_text()) if d["kind"] == "LLMDeployment"]
    assert [parse(document) for document in documents]


def open_port() -> int:
    """The README's own port, or another one where somebody has that."""
    for port in (FRONT_DOOR, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as probe:
            return int(probe.getsockname()[1])
    raise OSError("no port is free")


@pytest.fixture
def laptop(tiny_model: Path) -> Iterator[int]:
    """The port of `sluice up`, started as the README does."""
    port = open_port()
    model, up = commands(blocks("bash")[2])
    made = run(model)
    assert made.returncode == 0, made.stderr
    here = up.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    here += "" if port == FRONT_DOOR else f" --port {port}"
    process = subprocess.Popen(
        ["bash", "-c", f"exec {here}"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until_ready(process, port)
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def wait_until_ready(process: subprocess.Popen[str], port: int, seconds: float = 240) -> None:
    """Until the front door lists the model."""
    deadline = time.monotonic() + seconds
    while True:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
                if json.load(answer)["data"]:
                    return
        except (OSError, http.client.HTTPException):  # not yet, or not whole
            pass
        assert time.monotonic() < deadline, "sluice up was not ready in time"
        select_pause()


def select_pause() -> None:
    """A tenth of a second between two looks at another process."""
    import select

    select.select([], [], [], 0.1)


@pytest.mark.timeout(900)
def test_the_laptop_quickstart_answers(laptop: int) -> None:
    chat, bench = (line.replace(f":{FRONT_DOOR}", f":{laptop}") for line in commands(blocks("bash")[3]))
    answer = run(chat)
    assert answer.returncode == 0, answer.stderr
    assert "keeps the keys and values" in " ".join(answer.stdout.split())
    load = run(bench)
    assert load.returncode == 0, load.stdout + load.stderr


MINUTE = 1_772_438_400  # any time on the minute, seconds since 1970


def prometheus_answer() -> str:
    """What Prometheus answers to the README's query: two samples of each counter that it selects."""
    arguments = shlex.split(blocks("bash")[6].replace("\\\n", " "))
    query = arguments[arguments.index("--data-urlencode") + 1].removeprefix("query=")
    selected = re.search(r'__name__=~"([^"]+)"', query)
    assert selected is not None
    found = [name for name in COUNTERS if re.fullmatch(selected[1], name)]  # Prometheus anchors a pattern
    assert found == list(COUNTERS)
    series = [{"metric": {"__name__": name}, "values": [[MINUTE, "0"], [MINUTE + 60, "1000"]]} for name in found]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}})


def test_the_simulations_of_the_readme_print_an_answer(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("timestamp_ms,input_tokens,output_tokens\n0,100,20\n1500,300,40\n")
    (tmp_path / "load.json").write_text(prometheus_answer())

    def here(name: re.Match[str]) -> str:
        return str(tmp_path) if name[0] == "/tmp" else str(tmp_path / name[0])

    for line, answers in zip(commands(blocks("bash")[5]), (1, 1, 2), strict=True):
        done = run(re.sub(r"(log\.csv|load\.json|/tmp(?=/run))", here, line))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("the SLO (TTFT") == answers
    assert (tmp_path / "run.png").exists()
