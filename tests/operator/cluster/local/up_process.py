"""A running `sluice up` of the demo model, and the lines that it writes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

YAML = """\
apiVersion: sluice.dev/v1alpha1
kind: LLMDeployment
metadata: {{name: chat}}
spec:
  model: {{uri: "{uri}"}}
  engine:
    accelerator: {{count: 0}}
    kvCache: {{size: 16Mi}}
    scheduling: {{maxNumSeqs: 8}}
    template: {{env: [{{name: SLUICE_THREADS, value: "1"}}]}}
"""


def written(folder: Path, text: str) -> Path:
    """The text as a file of the folder."""
    file = folder / "chat.yaml"
    file.write_text(text)
    return file


def run_up(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`sluice up` of the file to its own end."""
    argv = [sys.executable, "-m", "sluice", "up", str(file), *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


class Up:
    """A running `sluice up` and its lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def until(self, **wanted: Any) -> dict[str, Any]:
        """The next line that has these fields."""
        if self.process.stdout is None:
            raise RuntimeError("no pipe")
        async with asyncio.timeout(90):
            async for raw in self.process.stdout:
                line: dict[str, Any] = json.loads(raw)
                self.lines.append(line)
                if all(line.get(name) == value for name, value in wanted.items()):
                    return line
        raise RuntimeError(f"sluice up ended before {wanted}")

    def pids(self) -> set[int]:
        """The processes of all replicas that it named."""
        return {pod["pid"] for line in self.lines for pod in line.get("pods", ()) if pod["pid"]}


@asynccontextmanager
async def sluice_up(file: Path, *options: str) -> AsyncIterator[Up]:
    """`sluice up` of the file on a free port; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sluice", "up", str(file), "--port", "0", *options, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield Up(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
