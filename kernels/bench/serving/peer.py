"""transformers' continuous batching under the load that the engine gets too: all requests at once, greedy."""

import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from bench.report import Result
from bench.serving import models
from bench.serving.drive import prompts, reports, submit
from bench.serving.loads import Sizes
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.utils import is_flash_attn_2_available

from sluice_engine.core.engine import EngineLoop

REQUESTS = 64
SMALL_REQUESTS = 4


def load(sizes: Sizes, *, small: bool) -> list[list[int]]:
    """The prompts of both."""
    return prompts(SMALL_REQUESTS if small else REQUESTS, sizes.prompt, sizes.model.vocab_size, seed=9)


def engine_result(engine: EngineLoop, sizes: Sizes, *, small: bool) -> Result:
    """Seconds per output token of the engine."""
    given, begun = load(sizes, small=small), time.monotonic()
    for index, prompt in enumerate(given):
        submit(engine, f"peer-{index}", prompt, sizes.output)
    tokens = sum(report.generated_tokens for report in reports(engine))
    if tokens != len(given) * sizes.output:
        raise RuntimeError(f"the engine gave {tokens} tokens, expected {len(given) * sizes.output}")
    return Result("engine, all at once", _shape(given, sizes), (time.monotonic() - begun) / tokens, 0, 0, 0.0)


def transformers_result(device: str, sizes: Sizes, *, small: bool) -> Iterator[Result]:
    """Seconds per output token of transformers' `generate_batch`."""
    module: Any = models.random_module(sizes.model, torch.device(device), "sdpa")
    given = load(sizes, small=small)
    config = GenerationConfig(max_new_tokens=sizes.output, do_sample=False, eos_token_id=-1, pad_token_id=0)
    begun = time.monotonic()
    found = module.generate_batch(given, generation_config=config, continuous_batching_config=_settings(device))
    seconds = time.monotonic() - begun
    tokens = sum(len(output.generated_tokens) for output in found.values())
    if tokens != len(given) * sizes.output:
        raise RuntimeError(f"transformers gave {tokens} tokens, expected {len(given) * sizes.output}")
    yield Result("transformers, all at once", _shape(given, sizes), seconds / tokens, 0, 0, 0.0)


def _settings(device: str) -> ContinuousBatchingConfig:
    """flash-attn where it is installed: by default a hub is asked for it. On a CPU the defaults take all of the memory."""
    known = {each.name for each in fields(ContinuousBatchingConfig)}
    if device == "cpu":
        page = "page_size" if "page_size" in known else "block_size"  # its name up to transformers 5.17
        return ContinuousBatchingConfig(**{page: 16, "num_blocks": 64, "max_batch_tokens": 64})
    flash = {"auto_switch_to_flash": is_flash_attn_2_available()}
    return ContinuousBatchingConfig(**{name: value for name, value in flash.items() if name in known})


def _shape(given: list[list[int]], sizes: Sizes) -> str:
    return f"{len(given)} requests, {sum(map(len, given))} prompt tokens, {sizes.output} output tokens each"
