"""Penalties, bias, barred stops and logprobs: their effect on a row, and that other rows do not change."""

import math

import numpy as np
import pytest
import torch

from sluice_engine.request import TokenLogprob
from sluice_engine.sampling import NOT_A_NUMBER, Sampler
from sluice_engine.sampling.logprobs import LOWEST
from tests.engine.drawing import greedy, sampled

LOGITS = torch.tensor([[1.0, 3.0, 2.0, 0.0, -1.0]])
HERE = np.array([0])


def test_counts_grow_with_every_sampled_token() -> None:
    sampler = Sampler(2, 5, LOGITS.device)
    sampler.join(1, greedy(frequency_penalty=0.4), [0], 1)
    slot = np.array([1])
    taken = [sampler.sample(LOGITS, slot, np.array([at])).tokens[0] for at in range(1, 9)]
    counts = [0] * 5
    for token in taken:
        penalised = [value - 0.4 * count for value, count in zip(LOGITS[0].tolist(), counts, strict=True)]
        assert penalised[token] == pytest.approx(max(penalised), abs=1e-5)
        counts[token] += 1
    assert len(set(taken)) > 1


def test_a_preempted_request_has_the_same_counts_when_it_resumes() -> None:
    torch.manual_seed(0)
    steps = torch.randn(30, 1, 40)
    sampling = greedy(temperature=0.8, seed=5, frequency_penalty=0.7, presence_penalty=0.3, repetition_penalty=1.3)
    prompt = [1, 2, 3]

    def text(breaks: tuple[int, ...]) -> list[int]:
        sampler = Sampler(3, 40, LOGITS.device)
        known, slot = list(prompt), 0
        sampler.join(slot, sampling, known, len(prompt))
        for step, logits in enumerate(steps):
            if step in breaks:  # preempted, its slot reused, and resumed in another slot
                sampler.join(slot, greedy(presence_penalty=1.0), [7, 8, 9], 1)
                slot = (slot + 1) % 3
                sampler.join(slot, sampling, known, len(prompt))
            known += sampler.sample(logits, np.array([slot]), np.array([len(known)])).tokens
        return known

    assert text(()) == text((4, 5, 19))


def test_a_row_that_does_not_sample_is_not_counted() -> None:
    sampler = Sampler(1, 5, LOGITS.device)
    sampler.join(0, greedy(presence_penalty=2.0), [0], 1)
    for _ in range(3):
        assert sampler.sample(LOGITS, HERE, HERE, np.array([False])).tokens == [1]
    assert sampler.sample(LOGITS, HERE, HERE).tokens == [1]
    assert sampler.sample(LOGITS, HERE, HERE).tokens == [2]


def test_repetition_covers_the_prompt_and_presence_does_not() -> None:
    assert sampled(LOGITS, [greedy(repetition_penalty=2.0)], [1], [1], 1).tokens == [2]
    assert sampled(LOGITS, [greedy(presence_penalty=2.0)], [1], [1], 1).tokens == [1]


def test_a_bias_forces_and_bans_and_an_id_beyond_the_logits_is_left_out() -> None:
    assert sampled(LOGITS, [greedy(logit_bias={4: 100.0})], [0]).tokens == [4]
    assert sampled(LOGITS, [greedy(logit_bias={1: -100.0, 5: 100.0})], [0]).tokens == [2]


def test_stop_tokens_are_barred_until_their_position() -> None:
    sampling = greedy(min_tokens=10)
    found = sampled(LOGITS.expand(3, -1), [sampling] * 3, [5, 9, 10], stop_ids=frozenset({1, 9}))
    assert found.tokens == [2, 2, 1]


def test_a_slot_keeps_no_parameters_of_its_last_request() -> None:
    sampler = Sampler(1, 5, LOGITS.device)
    everything = greedy(
        temperature=1.0, top_k=2, min_p=0.9, presence_penalty=2.0, logit_bias={4: 100.0}, min_tokens=99,
        logprobs=2,
    )  # fmt: skip
    sampler.join(0, everything, [1, 1], 1, frozenset({1}))
    sampler.sample(LOGITS, HERE, HERE)
    sampler.join(0, greedy())
    result = sampler.sample(LOGITS, HERE, HERE)
    assert result.tokens == [1] and result.logprobs == {}
    sampler.join(0, greedy(presence_penalty=0.5), [0], 1)
    assert sampler.sample(LOGITS, HERE, HERE).tokens == [1]


def test_logprobs_come_from_the_raw_logits_whatever_the_sampling_parameters() -> None:
    want = torch.log_softmax(LOGITS[0], dim=-1)
    plain = greedy(logprobs=2)
    bent = greedy(logprobs=3, logit_bias={4: 100.0}, temperature=0.5, seed=1)
    found = sampled(LOGITS.expand(3, -1), [plain, bent, greedy()], [0, 0, 0])
    assert set(found.logprobs) == {0, 1}
    assert found.tokens == [1, 4, 1]
    assert found.logprobs[0].logprob == pytest.approx(float(want[1]), abs=1e-6)
    assert [token for token, _ in found.logprobs[0].top] == [1, 2]
    assert found.logprobs[1].logprob == pytest.approx(float(want[4]), abs=1e-6)
    assert [token for token, _ in found.logprobs[1].top] == [1, 2, 0]
    assert math.exp(found.logprobs[1].top[0][1]) == pytest.approx(float(want[1].exp()), abs=1e-6)


def test_more_logprobs_than_tokens_gives_all_and_none_wanted_gives_none() -> None:
    found = sampled(LOGITS.expand(2, -1), [greedy(logprobs=20), greedy(logprobs=0)], [0, 0]).logprobs
    assert len(found[0].top) == 5
    assert found[1].top == ()


def test_an_impossible_token_has_a_logprob_that_json_can_represent() -> None:
    logits = torch.tensor([[0.0, -math.inf, -math.inf]])
    found = sampled(logits, [greedy(logprobs=3)], [0]).logprobs[0]
    assert found == TokenLogprob(0.0, ((0, 0.0), (1, LOWEST), (2, LOWEST)))


def test_a_row_that_is_not_a_number_is_neither_counted_nor_scored() -> None:
    sampler = Sampler(2, 5, LOGITS.device)
    for slot in range(2):
        sampler.join(slot, greedy(presence_penalty=2.0, logprobs=1), [0], 1)
    broken = LOGITS.repeat(2, 1)
    broken[0] = float("nan")
    both = np.array([0, 1])
    result = sampler.sample(broken, both, both)
    assert result.tokens == [NOT_A_NUMBER, 1]
    assert set(result.logprobs) == {1}


def test_a_batch_without_penalties_allocates_no_counts() -> None:
    sampler = Sampler(4, 5, LOGITS.device)
    for slot in range(4):
        sampler.join(slot, greedy(temperature=1.0 * slot, seed=slot))
    sampler.sample(LOGITS.expand(4, -1), np.arange(4), np.arange(4))
    assert sampler._penalties._counts is None
