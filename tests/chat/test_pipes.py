"""`sluice chat` without a terminal: what it asks, what it prints, and its exit codes."""

import os
import subprocess
import sys

import pytest

from tests.screens.scripted_server import Reply, ScriptedServer, scripted


def chat(server: ScriptedServer | None, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    url = server.url if server is not None else "http://127.0.0.1:1"
    command = [sys.executable, "-m", "sluice", "chat", "--url", f"{url}/v1/", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "SLUICE_API_KEY"}
    environment |= {"OPENAI_API_KEY": "from the environment"}
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environment)


def test_all_of_standard_input_is_one_question_before_the_argument() -> None:
    options = ("--system", "Be brief.", "--max-tokens", "9", "--temperature", "0.5", "--api-key", "mine")
    with scripted(Reply("A long answer that no pipe wraps. " * 5 + "\x1b")) as server:
        done = chat(server, *options, "Explain it.", stdin="line one\nline two\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "A long answer that no pipe wraps. " * 5 + "\x1b\n"
    assert server.keys == ["Bearer mine"]
    (request,) = server.requests
    assert request["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "line one\nline two\n\nExplain it."},
    ]
    assert (request["model"], request["max_tokens"], request["temperature"]) == ("scripted", 9, 0.5)


def test_the_key_of_the_openai_client_is_taken_from_the_environment() -> None:
    with scripted(Reply("Yes.")) as server:
        assert chat(server, "Hello?").stdout == "Yes.\n"
    assert server.keys == ["Bearer from the environment"]


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (None, "cannot be reached (connection refused)"),
        (Reply("half", then="cut"), "The answer broke off"),
        (Reply(status=503, message="Loading.", headers={"Retry-After": "3"}), "Loading. Ask again in 3 s."),
    ],
)
def test_no_answer_is_one_sentence_and_exit_code_1(reply: Reply | None, sentence: str) -> None:
    if reply is None:
        done = chat(None, "Hello?")
    else:
        with scripted(reply) as server:
            done = chat(server, "Hello?")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert sentence in done.stderr


@pytest.mark.parametrize("arguments", [(), ("--url", "localhost:8000", "Hello?")])
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    done = chat(None, *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
