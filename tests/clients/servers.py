"""The servers that clients speak to: real `sluice serve` processes with API keys.

SmolLM2 chats, all-MiniLM-L6-v2 embeds, and a small cross-encoder with random weights scores. A second server has
SmolLM2's weights and the chat template of a reasoning model, because no small model that reasons is at hand.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.clients.catalogue import HERE
from tests.engine.server.auth.keys import entry, key_file
from tests.engine.serving import Served, serving
from tests.engine.texts import save_texts_model, save_tokenizer

KEY: Final = "sk-of-the-clients"
LIMITED_KEY: Final = "sk-of-the-limited"
LIMIT: Final = 12  # requests per minute: one more is refused for five seconds
PATIENT: Final = ("--ttft-ms", "600000", "--itl-ms", "10000")  # nothing is rejected on a busy machine
SHORT: Final = ("--max-model-length", "2048")
THREADS: Final = str(min(os.cpu_count() or 1, 4))


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Starts all servers; yields the environment that tells a driver about them. Logs and models go into the folder."""
    keys = folder / "keys.yaml"
    keys.write_bytes(key_file(entry("clients", KEY), entry("limited", LIMITED_KEY, requestsPerMinute=LIMIT)))
    common = (*PATIENT, "--api-keys-file", str(keys))
    scoring = save_tokenizer(save_texts_model("bert-score", folder / "reranker"))
    chatting = _pulled("smollm2")
    reasoning = _with_template(chatting, HERE / "reasoner.jinja", folder / "reasoner")
    with (
        _serving(chatting, folder, "smollm2", "--kv-size", "512Mi", "--threads", THREADS, *common) as chat,
        _serving(reasoning, folder, "reasoner", "--kv-size", "256Mi", "--threads", THREADS, *SHORT, *common) as reason,
        _serving(_pulled("minilm"), folder, "minilm", "--kv-size", "64Mi", *common) as embed,
        _serving(scoring, folder, "reranker", *common) as rerank,
    ):
        yield {
            "CHAT_URL": _url(chat),
            "CHAT_FOLDER": str(chatting),
            "REASON_URL": _url(reason),
            "EMBED_URL": _url(embed),
            "RERANK_URL": _url(rerank),
            "OPENAI_BASE_URL": f"{_url(chat)}/v1",
            "OPENAI_API_KEY": KEY,
            "LIMITED_KEY": LIMITED_KEY,
        }


def _serving(model: Path, folder: Path, name: str, *options: str) -> AbstractContextManager[Served]:
    return serving(model, folder / f"{name}.log", "--served-name", name, *options)


def _url(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


def _with_template(model: Path, template: Path, folder: Path) -> Path:
    """A folder with links to the model's files and another chat template."""
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(template if file.name == "chat_template.jinja" else file)
    return folder


def _pulled(name: str) -> Path:
    """The folder of a known model, which is fetched on first use."""
    command = [sys.executable, "-m", "sluice", "model", "pull", name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(next(line for line in done.stdout.splitlines() if line.startswith("/")))
