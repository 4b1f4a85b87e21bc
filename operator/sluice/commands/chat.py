"""`sluice chat`: talk to a model in the terminal, over the public API."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice import contract

if TYPE_CHECKING:
    import aiohttp

DEFAULT_URL = f"http://127.0.0.1:{contract.DATA_PORT}"
Message = dict[str, str]


class ChatFailed(Exception):
    """The server is unreachable or refuses the request. The message is a sentence for the user."""


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("chat")(chat)


def chat(
    question: Annotated[str | None, typer.Argument(help="Question to ask; without it, an interactive chat.")] = None,
    url: Annotated[str, typer.Option(help="Base URL of the OpenAI API.", envvar="SLUICE_URL")] = DEFAULT_URL,
    model: Annotated[str | None, typer.Option(help="Model name. [the first one that the server lists]")] = None,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.", min=0, max=2)] = 0.0,
) -> None:
    """Talk to a model in the terminal."""
    try:
        asyncio.run(_talk(url.rstrip("/").removesuffix("/v1"), model, question, temperature))
    except ChatFailed as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(contract.EXIT_FAILED) from error
    except KeyboardInterrupt:
        typer.echo("")


async def _talk(url: str, model: str | None, question: str | None, temperature: float) -> None:
    import aiohttp
    from rich.console import Console

    if not url.startswith(("http://", "https://")):
        raise ChatFailed(f"--url must be an http URL such as {DEFAULT_URL}; not {url!r}.")
    console = Console(highlight=False)
    key = os.environ.get("OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        try:
            name = model or await _first_model(session, url)
            history: list[Message] = []
            if question is not None:
                await _turn(session, url, name, history, question, temperature, console)
                return
            console.print(f"[dim]{name} at {url}; an empty line or Ctrl-D ends the chat.[/dim]")
            while asked := await asyncio.to_thread(_ask, console):
                await _turn(session, url, name, history, asked, temperature, console)
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise ChatFailed(
                f"{url} cannot be reached ({error}); start a server or name another with --url."
            ) from error


def _ask(console: Any) -> str:
    try:
        return str(console.input("[bold cyan]you[/bold cyan] ")).strip()
    except (EOFError, KeyboardInterrupt):
        return ""


async def _turn(
    session: "aiohttp.ClientSession",
    url: str,
    model: str,
    history: list[Message],
    question: str,
    temperature: float,
    console: Any,
) -> None:
    """Send the question, print the output as it streams, and append both to the history."""
    history.append({"role": "user", "content": question})
    body = {"model": model, "messages": history, "temperature": temperature, "stream": True}
    answer: list[str] = []
    async for text in _stream(session, url + contract.PATH_CHAT_COMPLETIONS, body):
        answer.append(text)
        console.print(text, end="", markup=False, soft_wrap=True)
    console.print()
    history.append({"role": "assistant", "content": "".join(answer)})


async def _stream(session: "aiohttp.ClientSession", url: str, body: dict[str, Any]) -> AsyncIterator[str]:
    async with session.post(url, json=body) as response:
        if response.status != 200:
            raise ChatFailed(await _refusal(response))
        async for line in response.content:
            data = line.removeprefix(b"data: ").strip()
            if not data or data == b"[DONE]":
                continue
            event = json.loads(data)
            if "error" in event:
                raise ChatFailed(f"The answer was cut off: {event['error']['message']}")
            for choice in event["choices"]:
                if text := choice["delta"].get("content"):
                    yield text


async def _first_model(session: "aiohttp.ClientSession", url: str) -> str:
    async with session.get(url + contract.PATH_MODELS) as response:
        if response.status != 200:
            raise ChatFailed(await _refusal(response))
        models = json.loads(await response.read()).get("data") or []
    if not models:
        raise ChatFailed(f"{url} serves no model.")
    return str(models[0]["id"])


async def _refusal(response: "aiohttp.ClientResponse") -> str:
    try:
        message = json.loads(await response.read())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = "no reason given"
    return f"The server answered {response.status}: {message}"
