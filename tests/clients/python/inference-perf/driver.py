"""inference-perf: a few requests at a constant rate by each API; every one must succeed."""

import json
import tempfile
from pathlib import Path

from cases import CHAT, CHAT_URL, KEY, case, run
from load import CHAT_FOLDER, command

RATE, SECONDS = 2, 4


def length(tokens: int) -> dict:
    """A distribution of one value."""
    return {"min": tokens, "max": tokens, "mean": tokens, "std_dev": 0, "total_count": RATE * SECONDS + 1}


RANDOM = {"type": "random", "input_distribution": length(32), "output_distribution": length(8)}
PREFIX = {"num_groups": 2, "num_prompts_per_group": 4, "system_prompt_len": 16, "question_len": 16, "output_len": 8}


def measured(kind: str, data: dict) -> str:
    """What a run by one API counts."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "api": {"type": kind, "streaming": True},
            "data": data,
            "load": {
                "type": "constant", "stages": [{"rate": RATE, "duration": SECONDS}], "num_workers": 1,
                "worker_max_concurrency": 8,
            },
            "server": {"type": "vllm", "model_name": CHAT, "base_url": CHAT_URL, "api_key": KEY, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": CHAT_FOLDER},
            "storage": {"local_storage": {"path": folder}},
        }  # fmt: skip
        given = Path(folder) / "config.yml"
        given.write_text(json.dumps(config))
        command("inference-perf", "--config_file", str(given))
        found = json.loads((Path(folder) / "summary_lifecycle_metrics.json").read_text())
    assert found["failures"]["count"] == 0, found["failures"]
    assert found["successes"]["count"] == RATE * SECONDS, found["successes"]["count"]
    return f"{found['successes']['count']} requests"


@case("load")
def load() -> str:
    return measured("chat", {"type": "shared_prefix", "shared_prefix": PREFIX})


@case("completions")
def completions() -> str:
    return measured("completion", RANDOM)


run()
