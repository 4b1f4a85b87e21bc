"""The harness of the throughput comparison: real processes with a counting engine in them."""

import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.bench.throughput import bars, tokens
from tests.bench.throughput.compare import Outcome, interleave
from tests.bench.throughput.load import Load, read
from tests.bench.throughput.peer_venv import PeerUnavailable, requirements
from tests.bench.throughput.sides import SIDES, Side
from tests.bench.throughput.worker import Setup
from tests.engine.families import SMALL

ECHO = "tests.bench.throughput.side_echo"
SETUP = Setup("model", "float32", 1, 64)
LOAD = Load("four", ((1, 2), (3, 4), (5, 6), (7, 8)), (3, 1, 2, 4))


def side(name: str = "echo", python: str = sys.executable, batch: int = 0) -> Side:
    return Side(name, name, ECHO, lambda: python, batch=batch)


def run(sides: list[Side], tmp_path: Path, load: Load = LOAD, rounds: int = 2, *, split: bool = False) -> list[Outcome]:
    return interleave(sides, load, SETUP, rounds, tmp_path, lambda _: None, split=split)


def measured(name: str, *rates: float, failed: str | None = None, split: bool = False) -> Outcome:
    tokens = [100] * len(rates)
    return Outcome(SIDES[name], {}, tokens, [100 / rate for rate in rates], split=split, failed=failed)


@pytest.mark.parametrize(
    ("name", "requests", "output"), [("engine_load_64", 64, 5245), ("engine_load_spread_192", 192, 38843)]
)
def test_the_loads_match_the_requirement(name: str, requests: int, output: int) -> None:
    load = read(name)
    assert (len(load.prompts), load.tokens) == (requests, output)
    assert {len(load.warm_up(64, 8).prompts), max(load.warm_up(64, 8).max_tokens)} == {64, 8}


def test_a_round_has_the_same_lengths_and_no_prefix_of_another() -> None:
    load = read("engine_load_64")
    turned = load.turned(1)
    assert load.turned(0) == load
    assert [len(prompt) for prompt in turned.prompts] == [len(prompt) for prompt in load.prompts]
    assert not {prompt[0:2] for prompt in turned.prompts} & {prompt[0:2] for prompt in load.prompts}


def test_the_parts_of_a_load_add_up_to_the_load() -> None:
    load = read("engine_load_spread_192")
    parts = [load.part(number, 3, 16) for number in range(3)]
    assert sum((part.prompts for part in parts), ()) == load.prompts
    assert sum(part.tokens for part in parts) == load.tokens
    with pytest.raises(ValueError, match="not 5 equal parts"):
        load.part(0, 5, 16)


def test_every_side_answers_every_round_in_a_process_of_its_own(tmp_path: Path) -> None:
    first, second = run([side("a"), side("b")], tmp_path)
    assert first.failed is second.failed is None
    assert first.tokens == second.tokens == [10, 10]
    assert first.first == [[3, 4, 5], [5], [7, 8], [9, 10, 11, 12]]
    assert first.about == {"dtype": "float32"}


def test_a_split_side_runs_its_load_once_over_all_rounds(tmp_path: Path) -> None:
    (outcome,) = run([side(batch=2)], tmp_path, split=True)
    assert outcome.tokens == [4, 6]
    assert outcome.tokens_per_second == pytest.approx(10 / sum(outcome.seconds))


def test_a_side_that_fails_has_no_number_and_the_others_go_on(tmp_path: Path) -> None:
    def missing() -> str:
        raise PeerUnavailable("vLLM could not be installed: no network")

    bad = [side("gone", "/nowhere/python"), Side("absent", "absent", ECHO, missing)]
    gone, absent, good = run([*bad, side()], tmp_path)
    assert gone.failed and "/nowhere/python" in gone.failed
    assert absent.failed == "vLLM could not be installed: no network"
    assert good.failed is None and good.tokens_per_second
    (died,) = run([side()], tmp_path, Load("x", ((13,),), (2,)))
    assert died.failed and "Error: the 13th" in died.failed
    (raised,) = run([side()], tmp_path, Load("x", ((15,),), (2,)))
    assert raised.failed and "ValueError: the 15th" in raised.failed
    (short,) = run([side()], tmp_path, Load("x", ((14,),), (2,)), rounds=1)
    assert short.failed and "fewer or more tokens" in short.failed
    assert short.tokens_per_second is None


def test_medians_are_compared_and_a_failed_peer_is_a_failed_ratio() -> None:
    found = bars.rows(
        [measured("ours", 500, 900, 1000), measured("static", 100, 200, 300), measured("vllm", failed="no gcc")],
        {"static": 4.0, "vllm": 1.3},
    )
    ours, static, vllm, over_static, over_vllm = found
    assert [row.verdict for row in found] == ["recorded", "recorded", "FAILED", "met", "FAILED"]
    assert "900" in ours.value and "200" in static.value and vllm.failed == "no gcc"
    assert over_static.value == "4.5 ×" and over_vllm.bar == "≥ 1.3 ×"
    assert bars.rows([measured("ours", 700), measured("static", 200)], {"static": 4.0})[-1].verdict == "NOT MET"


def test_parts_of_one_run_are_added_up() -> None:
    assert measured("static", 50, 100, split=True).tokens_per_second == pytest.approx(200 / 3)


def test_vllm_is_installed_without_multimodal_extras_and_with_a_plain_torch() -> None:
    metadata = "".join(
        f"Requires-Dist: {line}\n"
        for line in (
            "regex",
            'torch==2.13.0+cpu; platform_system != "nowhere"',
            "torchaudio",
            'torchvision; platform_system != "nowhere"',
            "torchcodec>=0.14",
            'pandas; extra == "bench"',
            'numba==0.6; python_version < "3"',
        )
    )
    assert requirements(metadata) == ["regex", "torch==2.13.0"]


def test_greedy_tokens_of_transformers_hold_and_others_do_not(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SMALL)).eval()
    model.save_pretrained(tmp_path)
    model.generation_config.eos_token_id = None
    prompt = [5, 6, 7]
    answer = model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False, pad_token_id=0)[0, 3:].tolist()
    right = tokens.compare(tmp_path, [prompt], [answer], "float32", threads=1)
    assert right.holds and right.exact == right.tokens == 8 and right.allowed == tokens.TIE
    wrong = [*answer[:4], (answer[4] + 1) % 128, *answer[5:]]
    found = tokens.compare(tmp_path, [prompt], [wrong], "float32", threads=1)
    assert not found.holds and found.exact < 8
    assert bars.agreement(found, "float32").verdict == "NOT MET"
    rounded = tokens.compare(tmp_path, [prompt], [answer], "bfloat16", threads=1)
    assert rounded.holds and rounded.allowed > tokens.TIE
