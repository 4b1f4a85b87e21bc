"""Decode steps with 8-bit weights beside those in the model's own type, in turn. `python -m tests.bench int8`.

SmolLM2, whose keys and values are a third of what a step of many streams reads, and a Llama of the size of most models that
are quantised: the shape of Llama 3.2 1B with random weights.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sluice_engine.backend.resources import processors
from sluice_engine.config import Quantization
from sluice_engine.core.engine import EngineLoop
from sluice_engine.pulled import pull
from tests.bench.report.row import Report, Row, at_least
from tests.bench.step_cost.decoding import Decoding
from tests.bench.step_cost.engine import decoding_engine

STREAMS: Final = (1, 4, 16)
LEAST_RATIO: Final = 1.5
ROUNDS, STEPS = 20, 6  # rounds of each number of streams; steps of a round


def report(_out: Path, say: Callable[[str], None]) -> Report:
    """Rows by model and number of streams."""
    rows = _rows("SmolLM2-135M", pull("smollm2"), say)
    with tempfile.TemporaryDirectory(prefix="bench-llama-1b-") as folder:
        _make_llama().save_pretrained(folder)
        rows += _rows("Llama of 1.1 B", Path(folder), say)
    return Report(rows)


def measure(engines: tuple[EngineLoop, EngineLoop], streams: int) -> list[tuple[float, float]]:
    """Seconds of a step of both engines, by round. Raises RuntimeError for a step of other rows."""
    decodings = [Decoding(engine, 0, streams, (ROUNDS + 2) * (STEPS + 2)) for engine in engines]
    found = []
    with ExitStack() as running:
        for each in decodings:
            running.enter_context(each.running())
            each.run(STEPS)
        for turn in range(ROUNDS):
            order = (0, 1) if turn % 2 else (1, 0)
            seconds = {side: decodings[side].run(STEPS).seconds for side in order}
            found.append((seconds[0], seconds[1]))
    return found


def _rows(model: str, folder: Path, say: Callable[[str], None]) -> list[Row]:
    def loaded(quantization: Quantization) -> EngineLoop:
        say(f"{model}, quantization {quantization}")
        return decoding_engine(folder, processors(), max(STREAMS), quantization)

    engines = loaded("none"), loaded("int8")
    return [row for streams in STREAMS for row in _compared(model, streams, measure(engines, streams))]


def _compared(model: str, streams: int, rounds: Sequence[tuple[float, float]]) -> list[Row]:
    plain, int8 = (1e3 * statistics.median(side) for side in zip(*rounds, strict=True))
    many = f"{streams} streams" if streams > 1 else "one stream"
    ratio = statistics.median(own / quantised for own, quantised in rounds)
    return [
        Row(f"{model}, a decode step of {many}", f"{plain:.2f} ms, with int8 {int8:.2f} ms"),
        at_least(f"{model}, int8 over its own type, {many}", ratio, LEAST_RATIO, " ×"),
    ]


def _make_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        vocab_size=49_152,
        max_position_embeddings=8192,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
        dtype=torch.bfloat16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: LlamaForCausalLM = LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
    return model
