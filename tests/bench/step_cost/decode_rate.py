"""Tokens per second of one stream and of 16, with nothing but the engine's packages: in a pod of the image, and outside.

python tests/bench/step_cost/decode_rate.py FOLDER
kubectl exec -i POD -- /opt/sluice/bin/python - FOLDER < tests/bench/step_cost/decode_rate.py
"""

import json
import sys
import time
from typing import Final

from sluice_engine import messages
from sluice_engine.config import engine_options
from sluice_engine.core.engine import EngineLoop
from sluice_engine.sampling_params import SamplingParams

PROMPT_TOKENS: Final = 64
NO_TARGET: Final = 1e9  # seconds
TOKENS: Final = {1: 250, 16: 150}  # of each stream, by number of streams
ROUNDS: Final = ("warm-up", "measured")


def decode(engine: EngineLoop, streams: int, tokens: int, name: str) -> float:
    """Tokens per second from the first step on in which all streams decode."""
    sampling = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    for number in range(streams):
        first = 7919 * (number + 1) + 31 * len(name)
        prompt = tuple((first + 31 * place) % engine.model.vocab_size for place in range(PROMPT_TOKENS))
        engine.submit(messages.Submit(f"{name}-{number}", prompt, sampling, time.monotonic()))
    while (report := engine.step()) is None or report.prefill_tokens or report.sequences < streams:
        pass
    begun, generated = time.perf_counter(), 0
    while engine.has_work:
        report = engine.step()
        generated += 0 if report is None else report.generated_tokens
    return generated / (time.perf_counter() - begun)


def main(folder: str) -> None:
    """Print the rates of a model as JSON, by number of streams."""
    most = max(TOKENS)
    options = engine_options(
        model=folder,
        served_name="model",
        max_num_seqs=most,
        max_model_length=1024,
        kv_size=512 << 20,
        speculation="off",
        concurrency_min=most,
        concurrency_max=most,
        itl_target=NO_TARGET,
        ttft_target=NO_TARGET,
    )
    engine = EngineLoop(options)
    rates = {
        streams: [decode(engine, streams, tokens, f"{round_}-{streams}") for round_ in ROUNDS][-1]
        for streams, tokens in TOKENS.items()
    }
    sys.stdout.write(json.dumps(rates) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
