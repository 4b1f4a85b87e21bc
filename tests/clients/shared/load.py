"""Runs a load generator's command, and says how it ended."""

import os
import subprocess
import sys
from pathlib import Path

CHAT_FOLDER = os.environ["CHAT_FOLDER"]  # of the served model, for its tokenizer
BIN = Path(sys.executable).parent
LAST_WORDS = 400


def command(*words: str) -> str:
    """Runs a command of this environment; its output. Raises RuntimeError with its last words."""
    env = os.environ | {"COLUMNS": "160"}
    done = subprocess.run([str(BIN / words[0]), *words[1:]], env=env, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stdout + done.stderr)
    if done.returncode:
        raise RuntimeError(
            f"{words[0]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-LAST_WORDS:]}"
        )
    return done.stdout
