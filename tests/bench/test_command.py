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
