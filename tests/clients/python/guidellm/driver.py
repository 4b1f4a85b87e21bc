"""guidellm: a few requests of two streams at once by each API; every one must succeed."""

import json
import tempfile
from pathlib import Path

from cases import CHAT, CHAT_URL, KEY, case, run
from load import CHAT_FOLDER, command

REQUESTS = 6


def measured(path: str) -> str:
    """What a run by one API counts and measures."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        backend = f"kind=openai_http,target={CHAT_URL},model={CHAT},api_key={KEY},request_format={path}"
        command(
            "guidellm", "run", "--disable-console-interactive", "--backend", backend,
            "--profile", "kind=concurrent,streams=2", "--constraint", f"kind=max_requests,count={REQUESTS}",
            "--tokenizer", f"kind=huggingface_auto,model={CHAT_FOLDER}",
            "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8", "--output", f"kind=json,path={report}",
        )  # fmt: skip
        (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0), totals
    assert benchmark["metrics"]["output_token_count"]["successful"]["mean"] == 8
    return str(totals)


@case("load")
def load() -> str:
    return measured("/v1/chat/completions")


@case("completions")
def completions() -> str:
    return measured("/v1/completions")


@case("responses")
def responses() -> str:
    return measured("/v1/responses")


run()
