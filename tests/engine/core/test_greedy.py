"""Greedy output is plain transformers' `generate`, token for token, however the work was cut up."""

import random
from pathlib import Path

from sluice_engine.core.engine import EngineLoop
from tests.engine.oracle import Oracle, finish, options, run, submit


def prompts(count: int, low: int, high: int, seed: int = 0) -> list[list[int]]:
    dice = random.Random(seed)
    return [[dice.randrange(2, 128) for _ in range(dice.randint(low, high))] for _ in range(count)]


def compare(engine: EngineLoop, oracle: Oracle, texts: list[list[int]], max_tokens: int) -> None:
    for index, prompt in enumerate(texts):
        submit(engine, str(index), prompt, max_tokens)
    got = finish(engine)
    for index, prompt in enumerate(texts):
        oracle.expect(prompt, got[str(index)], max_tokens)


def test_a_single_request_equals_generate(tiny_llama: Path, oracle: Oracle) -> None:
    compare(EngineLoop(options(tiny_llama)), oracle, [[5, 6, 7, 8, 9]], 40)


def test_a_batch_of_mixed_lengths_equals_generate(tiny_llama: Path, oracle: Oracle) -> None:
    compare(EngineLoop(options(tiny_llama)), oracle, prompts(24, 1, 90), 30)


def test_chunked_prompts_beside_decodes_equal_generate(tiny_llama: Path, oracle: Oracle) -> None:
    compare(EngineLoop(options(tiny_llama, max_batched_tokens=32)), oracle, prompts(10, 1, 150, seed=1), 25)


def test_the_same_prompt_twice_is_a_hit_and_equals_generate(tiny_llama: Path, oracle: Oracle) -> None:
    engine = EngineLoop(options(tiny_llama))
    prompt = prompts(1, 64, 64)[0]  # full blocks only: a full hit, of which the last token is still computed
    compare(engine, oracle, [prompt], 20)
    submit(engine, "again", prompt, 20)
    reports = run(engine)
    assert sum(report.cached_prompt_tokens for report in reports) == 48
    oracle.expect(prompt, [token for report in reports for delta in report.deltas for token in delta.token_ids], 20)


def test_shared_prefixes_and_generated_blocks_are_hits_and_equal_generate(tiny_llama: Path, oracle: Oracle) -> None:
    engine = EngineLoop(options(tiny_llama))
    prefix = prompts(1, 40, 40, seed=2)[0]
    submit(engine, "first", prefix, 40)
    first = finish(engine)["first"]
    follow_ups = [prefix + first + tail for tail in prompts(6, 1, 20, seed=3)]
    for index, prompt in enumerate(follow_ups):
        submit(engine, str(index), prompt, 20)
    reports = run(engine)
    assert sum(report.cached_prompt_tokens for report in reports) >= 6 * 64  # beyond the prompt's 40
    for index, prompt in enumerate(follow_ups):
        got = [t for report in reports for d in report.deltas if d.request_id == str(index) for t in d.token_ids]
        oracle.expect(prompt, got, 20)


def test_preempted_requests_equal_generate(tiny_llama: Path, oracle: Oracle) -> None:
    block_bytes = 2 * 2 * 16 * 2 * 16 * 4
    engine = EngineLoop(options(tiny_llama, max_model_length=128, kv_size=block_bytes * 12))
    compare(engine, oracle, prompts(10, 10, 40, seed=4), 60)
    assert engine.scheduler.preemptions > 0
