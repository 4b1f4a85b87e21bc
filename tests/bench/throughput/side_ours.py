"""The Sluice engine through its offline API."""

import logging
import sys
from importlib.metadata import version

from tests.bench.throughput.worker import Generate, Setup, serve

KV_BYTES = 1 << 30


class Heard(logging.Handler):
    """Keeps the engine's log lines at load time: the kernels in use, and why not the fastest ones."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line."""
        self.lines.append(record.getMessage())


def load(setup: Setup) -> tuple[Generate, dict[str, str]]:
    """`LLM.generate`, speculation and quantization off."""
    from sluice_engine import LLM, SamplingParams

    heard, log = Heard(), logging.getLogger("sluice_engine.model")
    log.addHandler(heard)
    log.setLevel(logging.INFO)
    llm = LLM(
        setup.model,
        dtype=setup.dtype,
        threads=setup.threads,
        max_num_seqs=setup.concurrency,
        kv_size=KV_BYTES,
        speculation="off",
    )

    def generate(prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        params = [SamplingParams(max_tokens=most, temperature=0.0, ignore_eos=True) for most in max_tokens]
        return [list(result.token_ids) for result in llm.generate(prompts, params, progress=False)]

    versions = {"torch": version("torch"), "transformers": version("transformers"), "python": sys.version[:6]}
    return generate, versions | {"computed": "; ".join(heard.lines)}


if __name__ == "__main__":
    serve(load)
