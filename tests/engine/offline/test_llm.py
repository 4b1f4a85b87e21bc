"""Offline use: a list of prompts in, results in their order out, by the engine that serves."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import sluice_engine
from sluice_engine import LLM, SamplingParams
from sluice_engine.seeds import sample_seed
from sluice_engine.text import TokenizerInvalid
from tests.engine.oracle import Oracle

GREEDY = SamplingParams(max_tokens=24, temperature=0.0)
KV = {"threads": 1, "kv_size": 4 << 20}


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> LLM:
    """The trained tiny model, with its tokenizer."""
    return LLM(tiny_model, **KV)


@pytest.fixture
def llm(tiny: LLM) -> Iterator[LLM]:
    yield tiny
    tiny._engine.scheduler.check()
    assert tiny._engine.scheduler.pool.held == 0
    assert not tiny._engine.scheduler.requests


def test_prompts_of_ids_are_continued_as_by_transformers_in_their_order(tiny_llama: Path, oracle: Oracle) -> None:
    llm = LLM(tiny_llama, **KV, max_num_seqs=4)
    prompts = [[5 + index, 6, 7 + index] for index in range(11)]
    lengths = [3 + 5 * (index % 4) for index in range(11)]
    params = [SamplingParams(max_tokens=length, temperature=0.0) for length in lengths]
    results = llm.generate(prompts, params)
    assert [list(result.prompt_token_ids) for result in results] == prompts
    for result, prompt, length in zip(results, prompts, lengths, strict=True):
        oracle.expect(prompt, list(result.token_ids), length)
        assert result.finish_reason == ("length" if len(result.token_ids) == length else "stop")
        assert result.text == ""  # this folder has no tokenizer
        assert result.logprobs is None


def test_a_prompt_as_text_or_as_ids_gives_the_same_output(llm: LLM) -> None:
    by_text, other = llm.generate(["A replica is", "The scheduler"], GREEDY)
    (by_ids,) = llm.generate([list(by_text.prompt_token_ids)], GREEDY)
    (alone,) = llm.generate("A replica is", GREEDY)
    assert by_text.text and by_text.text == by_ids.text == alone.text
    assert other.text != by_text.text
    assert by_text.finish_reason in ("stop", "length")


def test_times_are_in_order(llm: LLM) -> None:
    (result,) = llm.generate("A replica is", SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True))
    assert result.first_token_at is not None and result.last_token_at is not None
    assert result.submitted_at < result.first_token_at < result.last_token_at


def test_a_stop_string_ends_the_text_before_it(llm: LLM) -> None:
    (whole,) = llm.generate("A replica is", GREEDY)
    stop = whole.text[len(whole.text) // 2 - 2 : len(whole.text) // 2 + 3]
    cut, spared = llm.generate(
        ["A replica is"] * 2,
        [
            SamplingParams(max_tokens=24, temperature=0.0, stop=(stop, "never")),
            SamplingParams(max_tokens=24, temperature=0.0, stop=stop, min_tokens=24, ignore_eos=True),
        ],
    )
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish_reason == "stop"
    assert len(cut.token_ids) < len(whole.token_ids)
    assert stop in spared.text and spared.finish_reason == "length"


def test_n_samples_differ_repeat_and_share_the_prompt(llm: LLM) -> None:
    prompt = "A prompt that nobody has asked before, long enough for several blocks of sixteen tokens each. " * 2
    params = SamplingParams(n=4, seed=3, temperature=1.3, max_tokens=10, ignore_eos=True, logprobs=1)
    first, again, one = (
        llm.generate(prompt, each)[0]
        for each in (params, params, SamplingParams(seed=3, temperature=1.3, max_tokens=10, ignore_eos=True))
    )
    texts = [sample.text for sample in first.samples]
    assert len(set(texts)) == 4
    assert texts == [sample.text for sample in again.samples]
    assert one.text == texts[0]
    for sample in first.samples:
        assert sample.logprobs is not None and len(sample.logprobs) == len(sample.token_ids) == 10
        assert all(len(entry.top) == 1 and entry.logprob <= entry.top[0][1] for entry in sample.logprobs)


def test_without_a_seed_two_calls_differ(llm: LLM) -> None:
    params = SamplingParams(temperature=1.5, max_tokens=16, ignore_eos=True)
    assert llm.generate("Once", params)[0].token_ids != llm.generate("Once", params)[0].token_ids


def test_an_interrupted_call_leaves_no_request_in_the_engine(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = llm._engine
    real, steps = engine.step, iter(range(3))

    def interrupted() -> object:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return real()

    monkeypatch.setattr(engine, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["Once", "Twice"], SamplingParams(max_tokens=200, ignore_eos=True))
    monkeypatch.undo()
    assert engine.scheduler.pool.held == 0
    assert llm.generate("A replica is", GREEDY)[0].text


def test_more_prompts_than_slots_and_queue_all_complete(tiny_llama: Path) -> None:
    llm = LLM(tiny_llama, **KV, max_num_seqs=2)
    results = llm.generate([[5, index % 100] for index in range(40)], SamplingParams(max_tokens=2, ignore_eos=True))
    assert [len(result.token_ids) for result in results] == [2] * 40
    assert llm.generate([]) == []


@pytest.mark.parametrize(
    ("prompts", "params", "words"),
    [
        ([[5]], [GREEDY, GREEDY], "2 SamplingParams for 1 prompts"),
        ([[5], []], GREEDY, "prompt 1 has no tokens"),
        ([[5], [128]], GREEDY, "prompt 1 has a token id outside the vocabulary of 128"),
        ([[5] * 512], GREEDY, "prompt 0 has 512 tokens; the model's context is 512"),
        ([[5], 7], GREEDY, "prompt 1 must be a string or a list of token ids, not int"),
        ([[5, "6"]], GREEDY, "prompt 0 must be"),
        ([[5]], SamplingParams(logit_bias={128: 1.0}), "logit_bias for prompt 0"),
    ],
)
def test_an_invalid_call_raises_before_any_computation(
    tiny_llama: Path, prompts: list[list[int]], params: SamplingParams, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        LLM(tiny_llama, **KV).generate(prompts, params)


def test_text_needs_a_tokenizer(tiny_llama: Path) -> None:
    llm = LLM(tiny_llama, **KV)
    for prompt, params in (("Once", GREEDY), ([5], SamplingParams(stop="x"))):
        with pytest.raises(TokenizerInvalid, match="which every model needs"):
            llm.generate([prompt], params)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("n", 0, "from 1 to 256"),
        ("max_tokens", 0, "of 1 or more or None"),
        ("max_tokens", True, "an integer"),
        ("min_tokens", 257, "from 0 to 256"),
        ("temperature", -0.1, "of 0 or more; 0 is greedy"),
        ("temperature", float("nan"), "a number"),
        ("top_k", -1, "0 is all"),
        ("top_p", 0.0, "above 0"),
        ("top_p", 1.01, "from 0 to 1"),
        ("min_p", 2, "from 0 to 1"),
        ("presence_penalty", 3, "from -2 to 2"),
        ("frequency_penalty", "1", "from -2 to 2"),
        ("repetition_penalty", 1e-38, "from 0.01 to 2"),
        ("logit_bias", {-1: 1.0}, "a token id in logit_bias"),
        ("logit_bias", {1: 101.0}, "from -100 to 100"),
        ("seed", 1.5, "an integer or None"),
        ("stop", ("a", ""), "non-empty"),
        ("stop_token_ids", (-1,), "stop_token_ids"),
        ("logprobs", -1, "or None for none"),
    ],
)
def test_invalid_sampling_params_raise_with_the_field_and_range(field: str, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert field in str(caught.value)


def test_the_progress_bar_is_drawn_only_if_requested(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate("Once", GREEDY)
    assert capsys.readouterr() == ("", "")  # not a terminal
    llm.generate("Once", GREEDY, progress=True)
    shown = capsys.readouterr()
    assert shown.out == "" and "1/1" in shown.err and "tokens/s" in shown.err


def test_public_names_are_imported_on_first_access() -> None:
    assert sorted(sluice_engine.__all__) == ["LLM", "SamplingParams"]
    with pytest.raises(AttributeError, match="no attribute 'Missing'"):
        sluice_engine.Missing  # noqa: B018
    program = "import sys, sluice_engine; assert 'torch' not in sys.modules; sluice_engine.SamplingParams(); " + (
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("blocks", [64, 11])
def test_n_samples_equal_separate_requests_with_their_seeds(tiny_llama: Path, blocks: int) -> None:
    """However they share: from one prompt's logits and blocks, or alone; also where they are preempted."""
    block_bytes = 2 * 2 * 16 * 2 * 16 * 4
    llm = LLM(tiny_llama, threads=1, kv_size=block_bytes * blocks, max_model_length=160, max_batched_tokens=32)
    prompt = [2 + 7 * index % 120 for index in range(70)]
    asked = SamplingParams(
        n=5, seed=11, temperature=1.2, max_tokens=30, ignore_eos=True, frequency_penalty=0.5, top_k=40
    )
    (several,) = llm.generate([prompt], asked)
    alone = [replace(asked, n=1, seed=sample_seed(11, index)) for index in range(5)]
    for sample, other in zip(several.samples, llm.generate([prompt] * 5, alone), strict=True):
        assert sample.token_ids == other.token_ids
    assert (llm._engine.scheduler.preemptions > 0) == (blocks == 11)
