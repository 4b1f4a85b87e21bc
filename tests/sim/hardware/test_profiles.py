"""Step-time models fitted to published measurements: close to their own rows, with non-negative terms."""

import csv
import gzip
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sluice_perfmodel.profile_file import MeasuredProfile
from sluice_perfmodel.step_time import StepTimeModel, StepWork
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
    with pytest.raises(BadProfile, match="'x' is neither a file of `sluice bench URL --profile-out FILE` nor one of"):
        read_profile("x")


MEASURED = MeasuredProfile(
    words="tiny (float32) at http://127.0.0.1:8000, measured 2026-11-24",
    model=StepTimeModel(0.001, 2e-5, 3e-8, 4e-4, 5e-9, error_ratio=0.07, steps=900),
    kv_tokens=8192,
    longest_prompt=958,
)


def test_a_measured_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(MEASURED.to_json())
    found = read_profile(str(file))
    assert (found.model, found.kv_tokens, found.longest_prompt, found.gpus) == (MEASURED.model, 8192, 958, None)
    assert found.words == f"{MEASURED.words} (mean error 7%)"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"kind": "x"}, "is no profile"),
        ({"step_seconds": {"base": 1}}, "must have step_seconds with base, prefill_token"),
        ({"step_seconds": {**asdict(MEASURED.model), "base": -1}}, "must have step_seconds"),
        ({"kv_tokens": 0}, "kv_tokens of 1 or more"),
        ({"longest_prompt": "long"}, "longest_prompt, a number of 0 or more, not 'long'"),
        ({"error_ratio": float("nan")}, "error_ratio, a number of 0 or more, not nan"),
    ],
)
def test_a_bad_profile_file_is_named_with_its_fault(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(json.loads(MEASURED.to_json()) | change))
    with pytest.raises(BadProfile, match=fault) as caught:
        read_profile(str(file))
    assert str(caught.value).startswith(f"--profile: {file} ")


def test_a_profile_file_by_which_a_decode_takes_no_time_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    without = replace(MEASURED, model=StepTimeModel(0.0, 2e-5, 3e-8))
    file.write_text(without.to_json())
    with pytest.raises(BadProfile, match="takes no time"):
        read_profile(str(file))


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
