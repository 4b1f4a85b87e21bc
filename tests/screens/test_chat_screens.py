"""`sluice chat` on a terminal: a conversation, its pastes, its Ctrl-C, and servers that fail."""

from pathlib import Path

import pytest

from tests.engine.serving import free_ports
from tests.screens.golden import compare
from tests.screens.scripted_server import Reply, scripted
from tests.screens.terminal import CTRL_C, CTRL_D, ENTER, UP, Terminal

KV_CACHE = (
    "The KV cache holds the keys and values of every token that a request has computed, so that each further token needs "
    "one row of attention instead of the whole prompt again.\n\nIt grows by one block per 16 tokens:\n\n"
    "    blocks = ceil(tokens / 16)\n\nSee https://example.com/a/rather/long/address/that/no/line/of/eighty/columns/holds/whole "
    "for more. 日本語の文章は単語の間に空白がないので、どの文字の後でも折り返すことができる。以上です。"
)
FIGURES = {r"(, [\d.]+ tokens/s)?, first after [\d.]+ s": ", # tokens/s, first after # s"}
ANSWERED = "first after"


def wait_for_prompt(terminal: Terminal, count: int) -> None:
    """Wait for this prompt of the chat: a terminal echoes keys that come before it on a line of their own."""
    terminal.wait_for("(?m)^you", count)


@pytest.mark.parametrize("columns", [80, 120])
def test_a_conversation(columns: int, tmp_path: Path) -> None:
    replies = Reply(KV_CACHE), Reply("Three lines, one question."), Reply("One two three\n", then="held"), Reply("Yes.")
    with (
        scripted(*replies) as server,
        Terminal("chat", "--url", server.url, columns=columns, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal,
    ):
        wait_for_prompt(terminal, 1)
        terminal.send("What is the KV cache?" + ENTER)
        wait_for_prompt(terminal, 2)
        terminal.paste("first line\nsecond line\nthird line")
        terminal.send(ENTER)
        wait_for_prompt(terminal, 3)
        terminal.send("Count on." + ENTER)
        terminal.wait_for("One two three")  # its newline was the last piece
        terminal.send(CTRL_C)
        wait_for_prompt(terminal, 4)
        terminal.send("Are you still there?" + ENTER)
        wait_for_prompt(terminal, 5)
        terminal.send(CTRL_D)
        assert terminal.finish() == 0
        compare(f"chat-{columns}", terminal, FIGURES)
    assert [message["content"] for message in server.requests[-1]["messages"][2:]] == [
        "first line\nsecond line\nthird line",
        "Three lines, one question.",
        "Count on.",
        "One two three\n",
        "Are you still there?",
    ]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_failed_question_gets_a_sentence_and_the_conversation_goes_on(columns: int, tmp_path: Path) -> None:
    replies = (
        Reply(status=503, message="The model is loading.", headers={"Retry-After": "12"}),
        Reply("The cache is", then="cut"),
        Reply(status=401, message="This server asks for an API key."),
        Reply(status=404, message="The model 'scripted' does not exist; this server serves 'other'."),
        Reply("All is well", finish="length"),
    )
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with Terminal("chat", "--url", url, columns=columns, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
        wait_for_prompt(terminal, 1)
        terminal.send("Is the server away?" + ENTER)
        terminal.wait_for("cannot be reached", 2)
        with scripted(*replies, port=port) as server:
            for number, question in enumerate(("Loading?", "Cut?", "Key?", "Model?", "And now?"), 3):
                wait_for_prompt(terminal, number - 1)
                terminal.send(question + ENTER)
                wait_for_prompt(terminal, number)
            terminal.send(CTRL_C)
            assert terminal.finish() == 0
        compare(f"chat-failures-{columns}", terminal, FIGURES)
    assert len(server.requests[-1]["messages"]) == 1  # no failed question is in the conversation


def test_reasoning_is_shown_before_the_answer_and_is_no_part_of_the_conversation(tmp_path: Path) -> None:
    thought = "The user asks for a colour, and any will do, so that the sky's is as good as another one here."
    replies = Reply("Blue.", reasoning=thought), Reply("Green.", reasoning="Another one.")
    with (
        scripted(*replies) as server,
        Terminal("chat", "--url", server.url, columns=80, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal,
    ):
        for number, question in enumerate(("Name a colour.", "Another?"), 1):
            wait_for_prompt(terminal, number)
            terminal.send(question + ENTER)
            terminal.wait_for(ANSWERED, number)
        wait_for_prompt(terminal, 3)
        terminal.send(CTRL_D)
        assert terminal.finish() == 0
        compare("chat-reasoning-80", terminal, FIGURES)
    assert [message["content"] for message in server.requests[-1]["messages"]] == [
        "Name a colour.",
        "Blue.",
        "Another?",
    ]


def test_ctrl_c_clears_a_line_and_ends_the_chat_at_an_empty_one(tmp_path: Path) -> None:
    with (
        scripted(Reply("Yes.")) as server,
        Terminal("chat", "--url", server.url, columns=80, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal,
    ):
        wait_for_prompt(terminal, 1)
        terminal.send("a question that is not meant")
        terminal.wait_for("not meant")
        terminal.send(CTRL_C)
        wait_for_prompt(terminal, 2)
        terminal.send(CTRL_C)
        assert terminal.finish() == 0
    assert server.requests == []


def test_questions_are_kept_for_the_next_chat_and_for_their_owner_only(tmp_path: Path) -> None:
    with scripted(Reply("Yes.")) as server:
        for keys in ("remember me" + ENTER, UP + ENTER):
            with Terminal("chat", "--url", server.url, columns=80, env={"XDG_STATE_HOME": str(tmp_path)}) as terminal:
                wait_for_prompt(terminal, 1)
                terminal.send(keys)
                terminal.wait_for(ANSWERED)
    assert [request["messages"][-1]["content"] for request in server.requests] == ["remember me"] * 2
    history = tmp_path / "sluice" / "chat_history"
    assert (history.stat().st_mode & 0o777, history.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_ctrl_c_ends_a_single_answer_with_exit_code_130() -> None:
    with (
        scripted(Reply("One two", then="held")) as server,
        Terminal("chat", "--url", server.url, "Count on.", columns=80) as terminal,
    ):
        terminal.wait_for("One")
        terminal.send(CTRL_C)
        assert terminal.finish() == 130
        assert "stopped" in terminal.screen()
