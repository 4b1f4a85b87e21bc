"""The committed table of compiled kernels: its rows, its file, and whether it belongs to the present sources."""

import ast
import csv
import hashlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import triton
from aot.calls import NAMES, Call, calls
from aot.compiled import Measured, measure

from sluice_kernels import launch, tiles

TABLE: Final = Path(__file__).with_name("table.csv")
ARCHITECTURES: Final = (80, 90, 100)
MAIN: Final = 90


@dataclass(frozen=True)
class Pending:
    """A kernel to compile. `digest` covers its source, arguments, options and architecture, and the version of Triton."""

    call: Call
    launch: launch.Launch
    architecture: int
    digest: str

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What names its row."""
        entry = self.launch.kernel.__name__.removeprefix("_")
        return (entry, self.call.name, NAMES[self.call.dtype], f"sm_{self.architecture}")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    kernel: str
    call: str
    dtype: str
    architecture: str
    default: str  # yes or no
    warps: int
    registers: int
    shared: int
    spilled: int
    resident: int
    wgmma: int
    mma: int
    byte_loads: int
    digest: str

    @property
    def name(self) -> tuple[str, str, str, str]:
        """What names it."""
        return (self.kernel, self.call, self.dtype, self.architecture)

    @property
    def measured(self) -> Measured:
        """Its numbers."""
        return Measured(*(getattr(self, field.name) for field in fields(Measured)))


def pending() -> Iterator[Pending]:
    """All kernels of all calls, as recorded from the public functions."""
    for call in calls():
        for architecture in ARCHITECTURES if call.default else (MAIN,):
            with launch.recording(architecture) as launches:
                call.run()
            for each in launches:
                yield Pending(call, each, architecture, digest(each, architecture))


def digest(recorded: launch.Launch, architecture: int) -> str:
    """Changes with whatever may change the machine code. Comments and formatting do not."""
    module = inspect.getmodule(recorded.kernel.fn)
    files = [inspect.getsourcefile(recorded.kernel.fn), inspect.getsourcefile(tiles)]
    called = {inspect.getsourcefile(each.fn) for each in vars(module).values() if isinstance(each, triton.JITFunction)}
    files += sorted(file for file in called if file is not None and file not in files)
    sources = [ast.unparse(ast.parse(Path(file).read_text())) for file in files if file is not None]
    return hashlib.sha256(repr((recorded.key, architecture, triton.__version__, sources)).encode()).hexdigest()[:12]


def row_of(one: Pending, measured: Measured | None = None) -> Row:
    """Compiles it, if it was not measured."""
    default = "yes" if one.call.default else "no"
    measured = measured or measure(one.launch, one.architecture)
    warps = one.launch.options.get("num_warps", 4)
    return Row(*one.name, default, warps, **asdict(measured), digest=one.digest)


def read(path: Path = TABLE) -> list[Row]:
    """The rows of the file."""
    numbers = {field.name for field in fields(Measured)} | {"warps"}
    rows = []
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            values: dict[str, Any] = {name: int(value) if name in numbers else value for name, value in line.items()}
            rows.append(Row(**values))
    return rows


def write(rows: Sequence[Row], path: Path = TABLE) -> None:
    """Writes the file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def stale(rows: Sequence[Row]) -> list[str]:
    """Why the rows do not belong to the present sources; nothing is compiled. Empty: they do."""
    now, then = {one.name: one.digest for one in pending()}, {row.name: row.digest for row in rows}
    changed = [name for name in now if name in then and now[name] != then[name]]
    groups = (("changed", changed), ("new", now.keys() - then.keys()), ("gone", then.keys() - now.keys()))
    return [f"{word}: {', '.join(name)}" for word, names in groups for name in sorted(names)]
