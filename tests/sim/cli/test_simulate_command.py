"""The command `sluice simulate`: its output, errors and exit codes."""

import json
import struct
import sys
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sluice.cli import app
from sluice_sim.cli.command import SimulateOptions, run_simulate
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results.run import Run
from sluice_sim.results.summary import summarise
from sluice_sim.results.table import misses

YAML = """
apiVersion: sluice.dev/v1alpha1
kind: LLMDeployment
metadata: {name: chat}
spec:
  model: {uri: "file:///models/chat"}
  slo: {ttftMilliseconds: 2000, itlMilliseconds: 100}
  scaling: {minReplicas: 1, maxReplicas: 3, scaleDownStabilizationSeconds: 60}
  admission: {concurrency: {min: 2, max: 64}}
"""
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:{15 + second // 60}:{second % 60:02d}.{half}000000,60,40\n"
    for second in range(120)
    for half in range(0, 10, 2)
)
PROFILE = "base=0.03,prefill_token=0.0002,sequence=0.004,kv_token=0.000002"


def simulate(folder: Path, *options: str) -> tuple[int, str, str]:
    file = folder / "chat.yaml"
    file.write_text(YAML, encoding="utf-8")
    result = CliRunner().invoke(app, ["simulate", str(file), *options], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


def test_the_command_prints_a_table_and_sentences_for_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(TRACE, encoding="utf-8")
    code, out, _ = simulate(tmp_path, "--trace", str(trace), "--profile", PROFILE, "--kv-tokens", "32000")
    assert code == 0
    move = "1 → 2 replicas: needed for the load of the last 15 minutes."
    for word in ("SLO attainment", "TTFT p50 / p95 / p99", "replica-hours", "600 in", move):
        assert word in out


def test_a_rate_without_a_trace_gives_the_same_arrivals_for_the_same_seed(tmp_path: Path) -> None:
    options = ("--rate", "1", "--seconds", "60", "--prompt-tokens", "60", "--output-tokens", "40", "--seed", "3")
    first = simulate(tmp_path, *options)
    assert first[0] == 0
    assert first[:2] == simulate(tmp_path, *options)[:2]


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:00,many,1\n", encoding="utf-8")
    for options, sentence in (
        (("--trace", str(trace)), "line 2, column ContextTokens: expected a whole number of tokens ≥ 1, found 'many'"),
        (("--trace", str(tmp_path / "none.csv")), "none.csv cannot be read: No such file or directory"),
        ((), "Give either --trace FILE or --rate"),
        (("--rate", "1", "--profile", "base=x"), "base must be seconds"),
    ):
        code, _, err = simulate(tmp_path, *options)
        assert code == 2
        assert sentence in err
        assert len(err.strip().splitlines()) == 1


def test_prompts_beyond_the_context_are_the_first_line_whatever_limits_it(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("timestamp_ms,input_tokens,output_tokens\n0,600,10\n1000,700,20\n2000,50,5\n", encoding="utf-8")
    text = "2 of 3 prompts are longer than 511 tokens, all rejected: {}; the longest request has 720 tokens with its output"
    pool = text.format("a replica's KV cache holds 512: give more with --profile or --kv-tokens")
    _, out, _ = simulate(tmp_path, "--trace", str(trace), "--kv-tokens", "520")
    assert out.splitlines()[0] == pool
    code, out, err = simulate(tmp_path, "--trace", str(trace), "--kv-tokens", "520", "--json")
    value = json.loads(out)
    assert code == 0 and value["notes"][0] == pool and err.splitlines()[0] == pool
    assert value["summary"]["refused"] == 2
    limited = tmp_path / "limited.yaml"
    limited.write_text(YAML.replace('chat"}', 'chat", maxModelLength: 512}'), encoding="utf-8")
    result = CliRunner().invoke(app, ["simulate", str(limited), "--trace", str(trace)])
    assert result.stdout.splitlines()[0] == text.format("set spec.model.maxModelLength (it is 512)")


def test_each_fault_of_the_file_is_a_sentence_that_names_its_field(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    for text, sentences in (
        (YAML.replace("maxReplicas: 3", "maxReplicas: many"), ("spec.scaling.maxReplicas must be a whole number",)),
        (YAML.replace("kind: LLMDeployment", "kind: Pod"), ("kind must be LLMDeployment",)),
        ("a: [", ("it is not YAML",)),
    ):
        file.write_text(text, encoding="utf-8")
        result = CliRunner().invoke(app, ["simulate", str(file), "--rate", "1"])
        assert result.exit_code == 2
        assert all(sentence in result.stderr for sentence in sentences)


BUSY = ("--rate", "3", "--seconds", "60", "--prompt-tokens", "60", "--output-tokens", "40", "--profile", PROFILE,
        "--kv-tokens", "32000", "--cold-start", "10")  # fmt: skip


def test_one_sentence_gives_the_gpus_and_whether_the_slo_is_met(tmp_path: Path) -> None:
    quiet = [part if part != "3" else "0.5" for part in BUSY]
    _, out, err = simulate(tmp_path, *quiet)
    assert "1 GPU at most, mean 1.0; the SLO (TTFT 2000 ms, ITL 100 ms) is met by 100.00% of" in out
    assert "requests (target: 99 %)." in out and "exact steps" in out
    assert "of one core" in err and "× real time" in err
    _, out, _ = simulate(tmp_path, *BUSY, "--scale", "4")
    assert "3 GPUs at most" in out and "below the target of 99 %: maxReplicas (3) was reached." in out


def test_twice_the_traffic_asks_for_more(tmp_path: Path) -> None:
    single = json.loads(simulate(tmp_path, *BUSY, "--json")[1])
    double = json.loads(simulate(tmp_path, *BUSY, "--json", "--double")[1])
    assert double["summary"]["requests"] == 2 * single["summary"]["requests"]
    assert double["summary"]["gpu_hours"] > single["summary"]["gpu_hours"]
    assert any("load × 2: superposed copies" in note for note in double["notes"])


def test_the_json_has_the_answer_the_summary_and_the_decisions(tmp_path: Path) -> None:
    code, out, _ = simulate(tmp_path, *BUSY, "--json", "--mode", "coarse", "--compare", "kpa", "--double")
    value = json.loads(out)
    assert code == 0
    assert value["summary"]["mode"] == "coarse" and "GPUs at most" in value["answer"]
    assert set(value["compared"]) == {"sluice", "kpa"}
    assert [moment["at"] for moment in value["moments"]][:3] == [0.0, 5.0, 10.0]
    assert any(one["dial"] == "replicas" and "replicas:" in one["sentence"] for one in value["decisions"])


PANELS = (
    ("requests/s", "offered"),
    ("replicas", "desired", "existing", "ready"),
    ("SLO met, %", "good, per 5 s", "target"),
    ("KV cache, %", "held", "target"),
    ("per replica", "limit (median)", "running", "waiting"),
)


def test_a_plot_without_an_ending_is_written_as_png_and_svg(tmp_path: Path) -> None:
    code, _, err = simulate(tmp_path, *BUSY, "--double", "--plot", str(tmp_path / "run"))
    assert code == 0 and "run.png" in err and "run.svg" in err
    png = (tmp_path / "run.png").read_bytes()
    width, height = struct.unpack(">II", png[16:24])
    assert png[:4] == b"\x89PNG" and width >= 1000 and height >= 1000
    drawn = ElementTree.fromstring((tmp_path / "run.svg").read_text(encoding="utf-8"))
    named = {one.get("id", ""): one for one in drawn.iter("{http://www.w3.org/2000/svg}g")}
    panels = [[text.strip() for text in named[f"axes_{number}"].itertext()] for number in range(1, 6)]
    for words, panel in zip(PANELS, panels, strict=True):
        assert [word for word in words if word not in panel] == []
    assert "seconds" in panels[4] and "axes_6" not in named
    assert any("GPUs at most, mean" in text for text in drawn.itertext())


def test_the_same_run_is_drawn_as_the_same_svg(tmp_path: Path) -> None:
    for name in ("one", "two"):
        simulate(tmp_path, *BUSY, "--mode", "coarse", "--plot", str(tmp_path / f"{name}.svg"))
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_only_on_a_terminal(tmp_path: Path, terminal: bool) -> None:
    (tmp_path / "chat.yaml").write_text(YAML, encoding="utf-8")
    paper = StringIO()
    console = Console(file=paper, force_terminal=terminal, width=80, color_system=None, _environ={})
    run_simulate(
        SimulateOptions(specs=(tmp_path / "chat.yaml",), rate=1.0, seconds=30.0, compare="kpa"), console=console
    )
    shown = paper.getvalue()
    assert "SLO attainment" in shown
    for what in ("simulating", "comparing"):
        lines = [line for line in shown.splitlines() if what in line]
        assert bool(lines) == terminal
        assert not terminal or "100%" in lines[-1]


def test_a_plot_that_cannot_be_made_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = simulate(tmp_path, *BUSY, "--plot", str(tmp_path / "run.pdf"))
    assert code == 2 and "must end in .png or .svg, or have no ending for both" in err
    code, _, err = simulate(tmp_path, *BUSY, "--plot", str(tmp_path / "none" / "run.png"))
    assert code == 2 and "there is no folder" in err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = simulate(tmp_path, *BUSY, "--plot", str(tmp_path / "run.png"))
    assert code == 2 and err.strip() == "--plot needs matplotlib: pip install matplotlib"  # before the run, not after


def test_a_bundled_trace_is_found_by_name_and_scaling_is_noted(tmp_path: Path) -> None:
    code, out, _ = simulate(
        tmp_path, "--trace", "azure2023_conv", "--start", "600", "--seconds", "30", "--scale", "0.5", "--mode", "coarse"
    )
    assert code == 0
    for words in ("coarse steps", "load × 0.5: requests kept by chance", "SageServe, fitted", "2 per replica"):
        assert words in out


def test_the_assumptions_are_printed_beside_the_result(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    lines = [f'{{"arrival": 0, "input_tokens": {prompt}, "output_tokens": 200}}\n' for prompt in (9000, 8000)]
    trace.write_text("".join(lines), encoding="utf-8")
    _, out, _ = simulate(tmp_path, "--trace", str(trace))
    assert "prompts of up to 9000 tokens: beyond 8192, the longest measured" in out
    assert out.startswith(
        "1 of 2 prompts are longer than 8191 tokens, all rejected: set spec.model.maxModelLength (8192 is assumed "
        "without it); the longest request has 9200 tokens with its output\n"
    )
    assert "outputs cut at the context of 8192 tokens: 1;" in out
    code, _, err = simulate(tmp_path, *BUSY[:2], "--profile", "unheard-of")
    assert code == 2 and "'unheard-of' is neither a file of" in err and "llama31-8b-a100-tp2" in err


def test_every_request_that_was_not_good_is_accounted_for() -> None:
    records = [
        RequestRecord(0.0, 1, 1, refused=index < 3, failed=3 <= index < 5, good=index >= 9) for index in range(20)
    ]
    run = Run(records, replicas=[(0.0, 1)], seconds=10.0)
    text = (
        "9 of 20 requests were not good: 1 rejected as too long, 2 rejected for overload, 2 lost with a replica, "
        "4 late or unfinished."
    )
    assert misses(summarise(run), too_long=1) == text
