"""aiperf: a few streamed requests, two at once; every one must succeed."""

import json
import tempfile
from pathlib import Path

from cases import CHAT, CHAT_URL, EMBED, EMBED_URL, KEY, case, run
from load import CHAT_FOLDER, command

REQUESTS = 6


def measured(kind: str, *options: str, model: str = CHAT, url: str = CHAT_URL) -> str:
    """What a run of one type of endpoint counts."""
    with tempfile.TemporaryDirectory() as folder:
        command(
            "aiperf", "profile", "--model", model, "--url", url, "--endpoint-type", kind, "--tokenizer", CHAT_FOLDER,
            "--api-key", KEY, "--concurrency", "2", "--request-count", str(REQUESTS), "--ui", "none",
            "--isl", "32", "--artifact-dir", folder, *options,
        )  # fmt: skip
        (report,) = Path(folder).rglob("profile_export_aiperf.json")
        found = json.loads(report.read_text())
    assert found["request_count"]["avg"] == REQUESTS, found["request_count"]
    assert not found.get("error_summary"), found["error_summary"]
    return f"{REQUESTS} requests, {found['request_latency']['avg']:.0f} ms on the mean"


@case("load")
def load() -> str:
    return measured("chat", "--streaming", "--osl", "8")


@case("completions")
def completions() -> str:
    return measured("completions", "--streaming", "--osl", "8")


@case("embeddings")
def embeddings() -> str:
    return measured("embeddings", model=EMBED, url=EMBED_URL)


run()
