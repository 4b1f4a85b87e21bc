"""What rounding to 8 bits costs the real model: the perplexity that the engine computes, against the dense model's."""

import math
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from transformers import AutoTokenizer

from sluice_engine import LLM, SamplingParams
from sluice_engine.pulled import pull
from tests.engine.quantised.packer import Format, quantise_folder

TOKENS = 512
EIGHT_BITS = Format("gptq", 8, 64)  # groups of 64: the hidden size of 576 is no multiple of 128
MOST = 1.01  # perplexity over the dense model's


def perplexity(folder: Path) -> float:
    """exp of the mean negative log-likelihood of the language reference's text on execution."""
    ids = AutoTokenizer.from_pretrained(folder)(topics["execmodel"])["input_ids"][:TOKENS]
    assert len(ids) == TOKENS
    engine = LLM(folder, threads=1, dtype="float32", kv_size=64 << 20, max_model_length=TOKENS + 1, max_num_seqs=1)
    result = engine.generate([ids], SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0))[0]
    scores = [each.logprob for each in result.prompt_logprobs or () if each is not None]
    assert len(scores) == TOKENS - 1
    return math.exp(-sum(scores) / len(scores))


@pytest.mark.timeout(600)
def test_eight_bits_cost_the_real_model_less_than_a_hundredth_of_its_perplexity(tmp_path: Path) -> None:
    source = pull("smollm2")
    folder, _ = quantise_folder(source, tmp_path, EIGHT_BITS)
    assert 1 / MOST < perplexity(folder) / perplexity(source) < MOST
