"""Which files a measured piece depends on: read from the code's own imports, so that no list of them goes stale.

An import counts as the file that it names; what a package's __init__ collects counts only where the package itself is
imported. Where an import leads to more than a piece runs through, the walk is told to stop there.
"""

import ast
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

import sluice_engine.admission
import sluice_sim
from sluice_sim.settings import Mode
from sluice_sim.tracks.job import CLAIRVOYANT, STATIC

_ROOMS: Final = tuple(Path(file).parents[1] for file in (sluice_sim.__file__, sluice_engine.admission.__file__))
_LAWS: Final = "sluice_sim.laws"
OURS: Final = ("sluice", "replicas-only", "admission-only")
_WRITTEN: Final = (CLAIRVOYANT, STATIC)
_SCHEDULE: Final = "sluice_sim.tracks.schedule"
# What every run imports and only some run through: all laws, ours as the default, its decide(), counts that somebody
# wrote, and this bookkeeping.
_NOT_FOR_ALL: Final = (
    f"{_LAWS}.registry",
    f"{_LAWS}.ours",
    "sluice_operator.decide",
    _SCHEDULE,
    "sluice_sim.tracks.store",
)
_EXACT: Final = "sluice_sim.engine"  # and the engines' whole scheduler behind it


@lru_cache(maxsize=64)
def sources(law: str, mode: Mode) -> tuple[Path, ...]:
    """The files behind a run of the law, in order of their paths. A peer's are those of all peers: a family shares
    helpers."""
    roots = ["sluice_sim.tracks.tasks" if law == CLAIRVOYANT else "sluice_sim.tracks.job"]
    stop = [*_NOT_FOR_ALL, *([_EXACT] if mode == "coarse" else [])]
    if law in OURS:
        stop = [name for name in stop if name not in (f"{_LAWS}.ours", "sluice_operator.decide")]
    elif law in _WRITTEN:
        stop.remove(_SCHEDULE)
    else:
        names = sorted(path.stem for path in (Path(sluice_sim.__file__).parent / "laws").glob("*.py"))
        roots += [f"{_LAWS}.{name}" for name in names if name not in ("__init__", "ours", "registry")]
        roots.append(f"{_LAWS}.registry")
    return tuple(sorted(reached(roots, stop)))


def reached(roots: Iterable[str], stop: Collection[str]) -> set[Path]:
    """The files of the named modules and of all that they import of ours, but for what is only behind `stop`."""
    todo, seen, found = list(roots), set(stop), set[Path]()
    seen.difference_update(todo)
    while todo:
        name = todo.pop()
        path = _file(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        found.add(path)
        todo += _imported(path)
    return found


@lru_cache(maxsize=1024)
def _imported(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found += [_giver(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes += node.orelse  # the rest is for readers: nothing runs through it
        else:
            nodes += ast.iter_child_nodes(node)
    return tuple(found)


def _giver(module: str, name: str) -> str:
    """The module that `from module import name` is about: a module of that name, or where a package has the name from."""
    path = _file(module)
    if _file(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    return _collected(path).get(name, module) if path is not None and path.stem == "__init__" else module


@lru_cache(maxsize=256)
def _collected(package: Path) -> dict[str, str]:
    """Names that a package's __init__ has from modules of ours."""
    tree = ast.parse(package.read_text(encoding="utf-8"))
    nodes = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module is not None]
    return {
        alias.asname or alias.name: _giver(str(node.module), alias.name)
        for node in nodes
        for alias in node.names
        if _file(str(node.module)) is not None
    }


@lru_cache(maxsize=1024)
def _file(name: str) -> Path | None:
    """The module's file in this repository's packages; None for anybody else's."""
    for room in _ROOMS:
        base = room.joinpath(*name.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None
