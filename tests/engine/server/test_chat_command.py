"""`sluice chat` against a real server."""

import subprocess
import sys

from typer.testing import CliRunner

from sluice import contract
from sluice.cli import app
from tests.engine.serving import Served, free_ports


def test_one_question_prints_the_streamed_answer(served: Served) -> None:
    result = CliRunner().invoke(app, ["chat", "What is a KV cache?", "--url", f"http://127.0.0.1:{served.port}/v1/"])
    assert result.exit_code == contract.EXIT_OK
    assert len(result.stdout.split()) > 3


def test_all_of_a_pipe_is_one_question(served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}"
    result = CliRunner().invoke(app, ["chat", "--url", url], input="What is a replica?\nAnd a request?\n\n")
    assert result.exit_code == contract.EXIT_OK
    assert len(result.stdout.strip().splitlines()) == 1  # one answer


def test_faults_are_one_sentence(served: Served) -> None:
    for arguments, words, code in (
        (["--url", f"http://127.0.0.1:{free_ports(1)[0]}"], "cannot be reached", contract.EXIT_FAILED),
        (["--url", "localhost"], "--url must be an http URL", contract.EXIT_USAGE),
        (["--url", f"http://127.0.0.1:{served.port}", "--model", "other"], "404", contract.EXIT_FAILED),
    ):
        result = CliRunner().invoke(app, ["chat", "hi", *arguments])
        assert result.exit_code == code
        assert words in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_the_http_process_loads_no_torch() -> None:
    code = "import sys, sluice_engine.server; sys.exit(sorted({'torch', 'transformers'} & set(sys.modules)) != [])"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
