"""Our engine, as an offline caller has it."""

import sys
from importlib.metadata import version

from tests.bench.throughput.worker import Generate, Setup, serve

KV_BYTES = 1 << 30


def load(setup: Setup) -> tuple[Generate, dict[str, str]]:
    """`LLM.generate`, speculation and quantization off."""
    from sluice_engine import LLM, SamplingParams

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

    return generate, {"torch": version("torch"), "transformers": version("transformers"), "python": sys.version[:6]}


if __name__ == "__main__":
    serve(load)
