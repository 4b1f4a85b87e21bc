"""Step-time models fitted to published measurements: close to their own rows, with non-negative terms."""

import csv
import gzip

import pytest

from sluice_perfmodel.step_time import StepWork
from sluice_sim.data import FOLDER
from sluice_sim.hardware.profiles import HARDWARE, BadProfile, named_profile, read_profile


@pytest.mark.parametrize("name", HARDWARE)
def test_every_profile_fits_its_own_measurements_within_a_tenth(name: str) -> None:
    profile = named_profile(name)
    model = profile.model
    assert model.error_ratio < 0.11
    assert 0.005 < model.base < 0.06  # reading the weights once
    assert model.prefill_token > 0 and model.prefill_context > 0 and model.sequence + model.kv_token > 0
    assert profile.longest_prompt == 8192 and (profile.largest_batch or 0) >= 32
    assert profile.kv_tokens is not None and profile.gpus is not None


def test_the_splitwise_fit_reproduces_a_measured_decode_step_and_prompt() -> None:
    """Llama-2-70B on 4 × H100: the medians of the rows with 32 sequences of 512 tokens, and of one prompt of 2,048."""
    model = named_profile("llama2-70b-h100-tp4").model
    with gzip.open(FOLDER / "profile_splitwise_perf_model.csv.gz", "rt", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["model"], row["hardware"], row["tensor_parallel"]) == ("llama2-70b", "h100-80gb", "4")
        ]
    decode = _median([float(r["token_time"]) for r in rows if (r["prompt_size"], r["batch_size"]) == ("512", "32")])
    prompt = _median([float(r["prompt_time"]) for r in rows if (r["prompt_size"], r["batch_size"]) == ("2048", "1")])
    assert model.predict(StepWork(sequences=32, kv_tokens=32 * 576)) * 1000 == pytest.approx(decode, rel=0.1)
    assert model.predict(StepWork(2048, 2048 * 1024)) * 1000 == pytest.approx(prompt, rel=0.15)


def test_the_sageserve_fit_reproduces_measured_runs() -> None:
    """32 prompts of 512 tokens and 128 tokens each: about 2.1 s; one prompt of 8,192: about 0.59 s before any token."""
    model = named_profile("llama31-8b-a100-tp2").model
    with gzip.open(FOLDER / "profile_sageserve_llama31_8b_tp2.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    whole = _median([float(r["e2e_time"]) for r in rows if r["batch_size"] == "32"])
    steps = sum(model.predict(StepWork(sequences=32, kv_tokens=32 * (512 + i))) for i in range(1, 128))
    assert model.predict(StepWork(32 * 512, 32 * 512 * 256)) + steps == pytest.approx(whole, rel=0.1)


def test_a_profile_is_a_name_terms_or_the_default() -> None:
    assert read_profile(None).words == named_profile("llama31-8b-a100-tp2").words
    given = read_profile("base=0.02,sequence=0.001")
    assert (given.model.base, given.gpus, given.kv_tokens) == (0.02, None, None)
    with pytest.raises(BadProfile, match="no profile is named 'x'"):
        read_profile("x")


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
