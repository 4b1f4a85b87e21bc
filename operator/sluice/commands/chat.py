"""`sluice chat`: a conversation with a model in the terminal, over the public API."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sluice import contract
from sluice.sentences import say

if TYPE_CHECKING:
    from sluice.chat.conversation import Choices

DEFAULT_URL = f"http://127.0.0.1:{contract.DATA_PORT}"


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("chat")(chat)


def chat(
    question: Annotated[
        str | None, typer.Argument(help="Question to ask; without it, a conversation.", show_default=False)
    ] = None,
    url: Annotated[str, typer.Option(help="Base URL of the OpenAI API.", envvar="SLUICE_URL")] = DEFAULT_URL,
    model: Annotated[
        str | None, typer.Option(help="Model name.  [default: the first one that the server lists]")
    ] = None,
    system: Annotated[str | None, typer.Option(help="System prompt: instructions before the first question.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Maximum tokens of one answer.  [default: the server's]")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.", min=0, max=2)] = 0.0,
    api_key: Annotated[
        str | None,
        typer.Option(help="API key, sent as a bearer token.", envvar=["SLUICE_API_KEY", "OPENAI_API_KEY"]),
    ] = None,
) -> None:
    """Talk to a model in the terminal.

    Ctrl-C ends an answer; at an empty line it ends the conversation, as Ctrl-D does. A paste of several lines is one
    question; Alt-Enter begins a new line. Questions are kept in $XDG_STATE_HOME/sluice/chat_history.

    Without a terminal, all of standard input is one question; with an argument as well, it comes before the argument.

    Exit codes: 0 answered, 1 no answer, 2 bad input, 130 a single answer ended by Ctrl-C.
    """
    from sluice.chat.conversation import Choices

    if not url.startswith(("http://", "https://")):
        say(f"--url must be an http URL such as {DEFAULT_URL}; not {url!r}.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    asked = _question(question)
    choices = Choices(model=model, system=system, max_tokens=max_tokens, temperature=temperature)
    raise typer.Exit(_run(url.rstrip("/").removesuffix("/v1").rstrip("/"), api_key, choices, asked))


def _question(argument: str | None) -> str | None:
    """The single question of the command line and standard input; None for a conversation. Exits with 2 if neither."""
    if sys.stdin.isatty() and argument is None and sys.stdout.isatty():
        return None
    piped = "" if sys.stdin.isatty() else sys.stdin.read().strip()
    asked = "\n\n".join(part for part in (piped, argument) if part)
    if not asked:
        say("There is no question: give it as an argument or on standard input.", err=True)
        raise typer.Exit(contract.EXIT_USAGE)
    return asked


def _run(url: str, api_key: str | None, choices: "Choices", question: str | None) -> int:
    import asyncio

    from sluice.chat.client import ChatError, Server
    from sluice.chat.conversation import Conversation
    from sluice.chat.session import Stopped, ask_once, talk

    async def run() -> None:
        async with Server(url, api_key) as server:
            conversation = Conversation(choices)
            if question is None:
                await talk(server, conversation)
            else:
                await ask_once(server, conversation, question)

    try:
        asyncio.run(run())
    except ChatError as error:
        say(str(error), err=True)
        return contract.EXIT_FAILED
    except (Stopped, KeyboardInterrupt):
        return contract.EXIT_INTERRUPTED
    return contract.EXIT_OK
