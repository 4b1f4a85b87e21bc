"""Speculation in the engine: a request gets the same tokens with and without it, whatever its parameters."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sluice_engine import LLM, SamplingParams, messages
from sluice_engine.core.engine import EngineLoop
from sluice_engine.speculation.ngram import PromptLookup
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.oracle import Oracle, options, run, submit

ROUND = [5, 9, 17, 33, 8, 21, 40]
PROMPT = ROUND * 5 + ROUND[:3]
NOT_THE_END: dict[str, object] = {"ignore_eos": True}
ASKED: dict[str, dict[str, object]] = {
    "greedy": NOT_THE_END,
    "end of sequence": {"logit_bias": {1: 4.0}},
    "drawn": NOT_THE_END | {"temperature": 0.3, "seed": 5},
    "drawn from a few": NOT_THE_END | {"temperature": 0.6, "top_k": 5, "top_p": 0.9, "seed": 6},
    "min-p": NOT_THE_END | {"temperature": 0.7, "min_p": 0.2, "seed": 7},
    "penalties": NOT_THE_END
    | {"temperature": 0.4, "seed": 8, "frequency_penalty": 0.1, "presence_penalty": 0.2, "repetition_penalty": 1.02},
    "rewarded repetition": NOT_THE_END | {"frequency_penalty": -0.5, "presence_penalty": -0.4},
    "bias": NOT_THE_END | {"temperature": 0.5, "seed": 9, "logit_bias": {9: 3.0, 17: -2.0}},
    "logprobs": NOT_THE_END | {"temperature": 0.3, "seed": 10, "logprobs": 3},
    "logprobs and penalties": NOT_THE_END | {"repetition_penalty": 0.8, "logprobs": 2},
    "min tokens": {"temperature": 0.4, "seed": 11, "min_tokens": 25, "logit_bias": {1: 6.0}},
    "stop token": NOT_THE_END | {"stop_token_ids": (33,), "min_tokens": 9},
}


def answers(reports: list[messages.StepReport]) -> dict[str, tuple[list[int], list[object], object]]:
    """Tokens, logprobs and the finish reason of each request."""
    found: dict[str, tuple[list[int], list[object], object]] = {}
    for report in reports:
        for delta in report.deltas:
            tokens, logprobs, _ = found.get(delta.request_id, ([], [], None))
            assert len(delta.logprobs) in (0, len(delta.token_ids))
            found[delta.request_id] = ([*tokens, *delta.token_ids], [*logprobs, *delta.logprobs], delta.finish)
    return found


def speak(folder: Path, speculation: str, **changes: object) -> tuple[EngineLoop, list[messages.StepReport]]:
    engine = EngineLoop(options(folder, speculation=speculation, **changes))
    for name, params in ASKED.items():
        submit(engine, name, PROMPT, 60, **params)
    return engine, run(engine)


def same(one: list[object], other: list[object]) -> bool:
    """Logprobs alike, but for the order of sums."""
    flat = [
        np.array([[each.logprob, *(value for _, value in each.top)] for each in side])  # type: ignore[attr-defined]
        for side in (one, other)
    ]
    return flat[0].shape == flat[1].shape and np.allclose(flat[0], flat[1], atol=1e-3)


SMALL: dict[str, object] = {"max_model_length": 112, "kv_size": 2 * 2 * 16 * 2 * 16 * 4 * 24}


@pytest.mark.parametrize(("changes", "wrong"), [({}, 0), ({}, 3), (SMALL, 5), (SMALL, None)])
def test_every_request_gets_the_same_tokens_with_and_without_speculation(
    tiny_llama: Path, changes: dict[str, object], wrong: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By prompt lookup, and by a guesser that knows the answer and errs in every so many tokens."""
    plain = answers(speak(tiny_llama, "off", **changes)[1])
    texts = [PROMPT + tokens for tokens, _, _ in plain.values()]

    def guess(_: PromptLookup, known: list[int], most: int) -> tuple[int, ...]:
        text = next((text for text in texts if text[: len(known)] == known), known)
        right = text[len(known) : len(known) + most]
        return tuple(2 if wrong and (len(known) + i) % wrong == 0 else token for i, token in enumerate(right))

    if wrong is not None:
        monkeypatch.setattr(PromptLookup, "draft", guess)
    engine, reports = speak(tiny_llama, "on", **changes)
    got = answers(reports)
    for name in ASKED:
        assert got[name][0] == plain[name][0], name
        assert got[name][2] == plain[name][2], name
        assert same(got[name][1], plain[name][1]), name
    speculation = engine.scheduler.speculation
    assert speculation.accepted > (20 if wrong is None else 150)
    assert engine.scheduler.pool.held == 0
    assert engine.scheduler.preemptions > 0 or not changes
    assert sum(report.draft_tokens for report in reports) == speculation.drafted
    assert sum(report.accepted_draft_tokens for report in reports) == speculation.accepted


def test_stop_strings_end_the_same_text_wherever_a_step_ends(tiny_model: Path) -> None:
    prompts = ["What is the KV cache? What is the KV cache? What is the KV cache?", "one two three one two three one"]
    (whole,) = LLM(tiny_model, threads=1, kv_size=4 << 20, speculation="off").generate(
        prompts[:1], SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
    )
    middle = len(whole.text) // 2
    params = [
        SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True, stop=whole.text[at : at + 4], min_tokens=least)
        for at, least in ((middle, 0), (middle - 5, 0), (3, 12), (1, 0))
    ] + [SamplingParams(max_tokens=40, temperature=0.5, seed=3, stop=("e", "th"), logprobs=1, min_tokens=6)]
    results = []
    for speculation in ("off", "on"):
        llm = LLM(tiny_model, threads=1, kv_size=4 << 20, speculation=speculation)
        results.append([llm.generate(prompts, each) for each in params])
    for plain, drafted in zip(*results, strict=True):
        for one, other in zip(plain, drafted, strict=True):
            assert (one.text, one.token_ids, one.finish_reason) == (other.text, other.token_ids, other.finish_reason)
            assert len(one.logprobs or ()) == len(other.logprobs or ())


def test_speculation_is_correct_beside_chunks_prefix_hits_and_other_requests(tiny_llama: Path, oracle: Oracle) -> None:
    engine = EngineLoop(options(tiny_llama, speculation="on", max_batched_tokens=24))
    for turn in range(2):
        for index in range(6):
            submit(engine, f"{turn}-{index}", PROMPT[index:] * 2, 40)
    for name, (tokens, _, _) in answers(run(engine)).items():
        oracle.expect(PROMPT[int(name[2:]) :] * 2, tokens, 40)
    assert engine.scheduler.speculation.drafted > 0


def test_a_draft_with_nan_output_fails_no_request(
    tiny_llama: Path, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = load_file(tiny_llama / "model.safetensors")
    poison = 127
    want = {prompt: oracle.generate([prompt, 6, 7], 30) for prompt in (5, 11)}
    assert not any(poison in text for text in want.values())
    weights["model.embed_tokens.weight"][poison] = float("nan")
    (tmp_path / "config.json").write_bytes((tiny_llama / "config.json").read_bytes())
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    monkeypatch.setattr(PromptLookup, "draft", lambda *_: (poison,))
    engine = EngineLoop(options(tmp_path, speculation="on"))
    for prompt in want:
        submit(engine, str(prompt), [prompt, 6, 7], 30)
    got = answers(run(engine))
    for prompt in want:
        oracle.expect([prompt, 6, 7], got[str(prompt)][0], 30)
    assert engine.scheduler.speculation.drafted > 20 and engine.scheduler.speculation.accepted == 0


def test_a_step_that_fails_with_drafts_is_run_without_them(
    tiny_llama: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EngineLoop(options(tiny_llama, speculation="on"))
    forward = engine.model.module.forward

    def narrow(*given: object, **named: object) -> object:
        if named["input_ids"].shape[1] not in (1, len(PROMPT)):  # type: ignore[attr-defined]
            raise torch.OutOfMemoryError("no room for drafts")
        return forward(*given, **named)

    monkeypatch.setattr(engine.model.module, "forward", narrow)
    monkeypatch.setattr(PromptLookup, "draft", lambda *_: (3, 4))
    submit(engine, "it", PROMPT, 20)
    oracle.expect(PROMPT, answers(run(engine))["it"][0], 20)
    assert engine.scheduler.speculation.drafted > 0 == engine.scheduler.speculation.accepted


def paced(folder: Path, speculation: str, **terms: float) -> tuple[float, EngineLoop]:
    """Seconds of virtual time for a text that goes round, each step held to these terms."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    model = StepTimeModel(**({"base": 0.01} | terms))  # type: ignore[arg-type]
    engine = EngineLoop(
        options(folder, speculation=speculation, pace=model, itl_target=1.0), clock=lambda: now[0], sleep=sleep
    )
    for turn in range(8):  # prompts of several lengths first: the fit learns what prompt tokens take
        submit(engine, f"before{turn}", [5 + turn, *range(2, 3 + 9 * turn)], 12, ignore_eos=True)
        run(engine)
    begun, drafted = now[0], engine.scheduler.speculation.drafted
    submit(engine, "it", PROMPT, 200, ignore_eos=True, logit_bias={7: 100.0})
    run(engine)
    engine.scheduler.speculation.drafted -= drafted
    return now[0] - begun, engine


def test_auto_drafts_where_the_step_time_model_says_that_it_pays(tiny_llama: Path) -> None:
    plain, _ = paced(tiny_llama, "off", prefill_token=1e-4)
    cheap, engine = paced(tiny_llama, "auto", prefill_token=1e-4)
    assert cheap < 0.4 * plain
    assert engine.scheduler.speculation.accepted > 100


def test_auto_stops_by_itself_where_a_draft_costs_more_than_the_token_that_it_saves(tiny_llama: Path) -> None:
    plain, _ = paced(tiny_llama, "off", prefill_token=2e-2)
    dear, engine = paced(tiny_llama, "auto", prefill_token=2e-2)
    always, _ = paced(tiny_llama, "on", prefill_token=2e-2)
    assert always > 1.5 * plain
    assert dear < 1.15 * plain
    assert engine.scheduler.speculation.drafted < 40
