"""Runs a conversion in a process of its own.

The conversion holds every weight in memory and imports torch, which the HTTP process and the command line never do. A
process that runs out of memory ends alone.
"""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sluice_engine.errors import InsufficientMemory, ModelInvalid

CONVERTED_DTYPES: Final = ("bfloat16", "float16", "float32")
Stage = Literal["reading", "dequantising", "writing"]


@dataclass(frozen=True, slots=True)
class Converted:
    """What the GGUF file's own metadata say about the model."""

    architecture: str
    licence: str | None


def convert(
    file: Path, folder: Path, dtype: str = "bfloat16", on_stage: Callable[[Stage], None] | None = None
) -> Converted:
    """Dequantise the GGUF `file` into the new `folder`: config, safetensors in `dtype`, tokenizer, chat template.

    Raises ModelInvalid (unreadable, truncated, unsupported), InsufficientMemory (the process was killed) and OSError
    (the folder cannot be written). A failure leaves a partial `folder` that its owner removes.
    """
    command = [sys.executable, "-m", "sluice_engine.gguf", str(file), str(folder), dtype]
    with (
        tempfile.TemporaryFile() as errors,  # not a pipe: a full one without a reader would stop the process
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            converted = _follow(process, on_stage)
            status = process.wait()
        except BaseException:
            process.kill()
            raise
        if converted is not None:
            return converted
        if status == -signal.SIGKILL:
            raise InsufficientMemory(
                f"The conversion of {file} was killed, as the kernel does when memory runs out. It holds all weights "
                "at once: give it more memory, or convert the file on a larger machine with `sluice model pull`."
            )
        errors.seek(0)
        last = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ModelInvalid(f"The conversion of {file} ended with status {status}: {' '.join(last) or 'no output'}")


def _follow(process: "subprocess.Popen[bytes]", on_stage: Callable[[Stage], None] | None) -> Converted | None:
    """Read the messages of the process until its end. Raises the fault that one of them names."""
    converted: Converted | None = None
    for line in process.stdout or ():
        message = json.loads(line)
        if "invalid" in message:
            raise ModelInvalid(message["invalid"])
        if "unwritable" in message:
            raise OSError(message["unwritable"])
        if "architecture" in message:
            converted = Converted(message["architecture"], message["licence"])
        elif on_stage is not None:
            on_stage(message["stage"])
    return converted
