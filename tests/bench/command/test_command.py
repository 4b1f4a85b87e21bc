"""`sluice bench` reports bad input in a sentence and validates its prompts strictly."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.cli import app


def test_contradicting_options_exit_2_with_a_sentence() -> None:
    result = CliRunner().invoke(app, ["bench", "http://127.0.0.1:1", "--rate", "1", "--concurrency", "2"])
    assert result.exit_code == 2
    assert "either a rate or a concurrency" in result.output


@pytest.mark.parametrize(
    "line", ["not json", "[1]", '{"question": "x"}', '{"prompt": 3}', '{"prompt": "x", "expect": 3}']
)
def test_a_bad_line_of_prompts_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'{{"prompt": "fine"}}\n\n{line}\n')
    result = CliRunner().invoke(app, ["bench", "http://127.0.0.1:1", "--prompts", str(file)])
    assert result.exit_code == 2
    assert "prompts.jsonl:3" in result.output


def test_an_unreachable_server_exits_1_with_a_sentence() -> None:
    result = CliRunner().invoke(app, ["bench", "http://127.0.0.1:1", "--requests", "1"])
    assert result.exit_code == 1
    assert "cannot be reached" in result.output


def test_a_model_folder_that_is_a_file_exits_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["model", "tiny", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "is a file" in result.output


def test_the_help_shows_each_default_and_the_exit_code_of_ctrl_c() -> None:
    result = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200"})
    for word in (
        "[default: 8]",
        "[default: 100, or no bound with --duration]",
        "[default: 128]",
        "130 ended by Ctrl-C",
    ):
        assert word in " ".join(result.output.split())


def test_a_profile_has_a_load_of_its_own() -> None:
    options = ["--profile-out", "machine.json", "--rate", "2", "--out", "x"]
    result = CliRunner().invoke(app, ["bench", "http://127.0.0.1:1", *options])
    assert result.exit_code == 2
    assert "leave out --rate, --out" in result.output
