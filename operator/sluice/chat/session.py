"""Runs a conversation: an interactive one in a terminal, or one question through pipes."""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable
from typing import Final

from rich.console import Console
from rich.text import Text

from sluice.chat.client import ChatError, Server
from sluice.chat.conversation import Conversation, figures
from sluice.chat.output import Output
from sluice.completion_stream import Stream

KEYS: Final = "Ctrl-C ends an answer, Ctrl-D the chat. Alt-Enter: new line. /clear: new chat."


class Stopped(Exception):
    """Ctrl-C ended the only answer."""


async def ask_once(server: Server, conversation: Conversation, question: str) -> None:
    """Print the answer to one question; with its figures on a terminal. Raises ChatError, Stopped."""
    if await _turn(server, conversation, question):
        raise Stopped


async def talk(server: Server, conversation: Conversation) -> None:
    """Answer questions until the user ends the chat. A failed question gets a sentence, and the chat goes on."""
    from sluice.chat.prompt import Prompt, keyboard_unechoed

    console, prompt = Console(), Prompt()
    try:
        _note(console, f"{await server.model(conversation.choices.model)} at {server.url}")
    except ChatError as error:
        _note(console, str(error), "yellow")
    _note(console, KEYS)
    if prompt.fault is not None:
        _note(console, prompt.fault, "yellow")
    while (question := await prompt.question()) is not None:
        if question == "/clear":
            conversation.turns.clear()
            _note(console, "The model sees nothing of the questions before.")
            continue
        try:
            with keyboard_unechoed():
                await _turn(server, conversation, question)
        except ChatError as error:
            _note(console, str(error), "yellow")
        console.print()


async def _turn(server: Server, conversation: Conversation, question: str) -> bool:
    """Print the answer as it streams; True if Ctrl-C stopped it.

    The answer joins the conversation, a stopped one as far as it came; a failed one does not. Raises ChatError.
    """
    stream, asked = Stream(), time.perf_counter()
    output = Output()
    try:
        stopped = await _until_interrupt(server.answer(conversation, question, stream, output.text, output.reasoning))
    finally:
        output.end()
    if stream.pieces:
        conversation.turns.append((question, stream.text))
    if sys.stdout.isatty():
        _note(Console(), figures(stream, asked, stopped=stopped))
    return stopped


async def _until_interrupt(work: Awaitable[None]) -> bool:
    """Do the work until its end, or until Ctrl-C: True."""
    task = asyncio.ensure_future(work)
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        await task
    except asyncio.CancelledError:
        if not interrupted:
            raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return interrupted


def _note(console: Console, sentence: str, style: str = "dim") -> None:
    console.print(Text(sentence, style=style))
