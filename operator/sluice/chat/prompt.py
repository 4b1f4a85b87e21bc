"""The question line: editing, history, and pastes of several lines as one question."""

import os
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

PROMPT: Final = "you "


class Prompt:
    """Reads questions from the terminal. `fault` says why the history is not kept, or is None."""

    def __init__(self) -> None:
        file = history_file()
        history: History = InMemoryHistory()
        self.fault: str | None = None
        try:
            _make_private(file)
            history = FileHistory(str(file))
        except OSError as error:
            self.fault = f"The history is not kept: {file} cannot be written ({error.strerror})."
        self._session: PromptSession[str] = PromptSession(
            [("ansicyan bold", PROMPT)], history=history, key_bindings=_keys(), prompt_continuation=_continuation
        )

    async def question(self) -> str | None:
        """The next question; None for Ctrl-D, or for Ctrl-C at an empty line. Ctrl-C in a line clears it."""
        while True:
            try:
                question = (await self._session.prompt_async()).strip()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self._session.default_buffer.text:
                    return None
                continue
            if question:
                return question


def history_file() -> Path:
    """`sluice/chat_history` in the user's folder for state (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return folder / "sluice" / "chat_history"


@contextmanager
def keyboard_unechoed() -> Iterator[None]:
    """Keys pressed during an answer are not echoed into it; they are read by the next prompt."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    unechoed = termios.tcgetattr(descriptor)
    unechoed[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, unechoed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _make_private(file: Path) -> None:
    """Create the file for its owner only, or take the rights of others away. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


def _continuation(width: int, line_number: int, wrap_count: int) -> StyleAndTextTuples:
    """Indents the further lines of a question as far as its first."""
    return [("", " " * width)]
