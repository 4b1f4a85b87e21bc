"""`sluice simulate` as a user meets it."""

from pathlib import Path

from typer.testing import CliRunner

from sluice.cli import app

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


def test_a_trace_becomes_a_table_and_sentences(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text(TRACE, encoding="utf-8")
    code, out, _ = simulate(tmp_path, "--trace", str(trace), "--profile", PROFILE, "--kv-tokens", "32000")
    assert code == 0
    for word in ("SLO attainment", "TTFT p50 / p95 / p99", "replica-hours", "600 in", "1 → 2 replicas: ITL binds."):
        assert word in out


def test_a_rate_needs_no_trace_and_repeats_with_its_seed(tmp_path: Path) -> None:
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
