"""The results of a run, one file per device: results/<device>.csv, which grows, and .md, the last run."""

import csv
import hashlib
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
import triton
from bench.ceilings import Ceilings

import sluice_kernels


@dataclass(frozen=True)
class Result:
    """One line. `fraction` is the floor, from the ceilings measured in the same run, over the seconds."""

    what: str
    shape: str
    seconds: float
    bytes: int
    flops: int
    fraction: float


def write(results: Sequence[Result], first: int, ceilings: Ceilings, folder: Path) -> None:
    """Appends the results from index `first` to the device's CSV, and rewrites the summary of all."""
    folder.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"interpreter-{platform.machine()}"
    versions = {
        "device": device,
        "commit": _commit(),
        "code": sources_digest(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "copy_gb_s": round(ceilings.copy / 1e9, 1),
        "matmul_tflop_s": round(ceilings.matmul / 1e12, 2),
    }
    path = folder / f"{device.replace(' ', '-')}.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*versions, *(field.name for field in fields(Result))])
        if new:
            writer.writeheader()
        writer.writerows(versions | asdict(result) for result in results[first:])
    lines = [f"# {device}", "", *(f"- {name}: {value}" for name, value in versions.items()), ""]
    lines += ["| Kernel | Shape | µs | Of the floor |", "|---|---|---|---|"]
    lines += [f"| {one.what} | {one.shape} | {one.seconds * 1e6:.0f} | {_share(one)} |" for one in results]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")


def _share(one: Result) -> str:
    """Of the floor, where there is one."""
    return f"{one.fraction:.1%}" if one.fraction else ""


def sources_digest() -> str:
    """Returns a digest of the kernels' sources, which distinguishes results of different code."""
    files = sorted(Path(sluice_kernels.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\n".join(path.read_bytes() for path in files)).hexdigest()[:20]


def _commit() -> str:
    """The checked out commit, or unknown outside a repository."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
