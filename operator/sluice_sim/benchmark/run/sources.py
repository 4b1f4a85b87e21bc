"""The source files that a measured piece depends on, read from the code's imports so that no list can go stale.

An import counts as the file that it names. The contents of a package's __init__ count only if the package itself is
imported. The walk stops at modules that lead to more code than a piece runs.
"""

import ast
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

import sluice_engine
import sluice_sim
from sluice_sim.benchmark.run.job import CLAIRVOYANT, STATIC
from sluice_sim.cluster.scenario import Mode

_ROOMS: Final = tuple(Path(file).parents[1] for file in (sluice_sim.__file__, sluice_engine.__file__))
_LAWS: Final = "sluice_sim.policies"
OURS: Final = ("sluice", "replicas-only", "admission-only")
_WRITTEN: Final = (CLAIRVOYANT, STATIC)
_SCHEDULE: Final = "sluice_sim.benchmark.search.schedule"
# Modules that every run imports and only some runs execute: all laws, sluice as the default, its decide(), written
# schedules, and this bookkeeping.
_NOT_FOR_ALL: Final = (
    f"{_LAWS}.registry",
    f"{_LAWS}.sluice",
    "sluice_operator.autoscaler",
    _SCHEDULE,
    "sluice_sim.benchmark.run.store",
)
_EXACT: Final = "sluice_sim.engine.exact"  # exact mode only, with the engines' whole scheduler behind it


@lru_cache(maxsize=64)
def sources(law: str, mode: Mode) -> tuple[Path, ...]:
    """The files behind a run of the law, ordered by path.

    A peer depends on all peers, because a family shares helpers.
    """
    roots = ["sluice_sim.benchmark.run.tasks" if law == CLAIRVOYANT else "sluice_sim.benchmark.run.job"]
    stop = [*_NOT_FOR_ALL, *([_EXACT] if mode == "coarse" else [])]
    if law in OURS:
        stop = [name for name in stop if name not in (f"{_LAWS}.sluice", "sluice_operator.autoscaler")]
    elif law in _WRITTEN:
        stop.remove(_SCHEDULE)
    else:
        roots += [name for name in _policies() if name != f"{_LAWS}.sluice"]
    return tuple(sorted(reached(roots, stop)))


def _policies() -> list[str]:
    """The dotted names of all policy modules."""
    folder = Path(sluice_sim.__file__).parent
    found = (path.relative_to(folder.parent).with_suffix("").parts for path in (folder / "policies").rglob("*.py"))
    return sorted(".".join(parts) for parts in found if parts[-1] != "__init__")


def reached(roots: Iterable[str], stop: Collection[str]) -> set[Path]:
    """The files of the named modules and of their first-party imports, except those reachable only via `stop`."""
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
            nodes += node.orelse  # imports for type checkers are not executed
        else:
            nodes += ast.iter_child_nodes(node)
    return tuple(found)


def _giver(module: str, name: str) -> str:
    """The module that `from module import name` refers to: a submodule, or the origin of a re-exported name."""
    path = _file(module)
    if _file(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    return _collected(path).get(name, module) if path is not None and path.stem == "__init__" else module


@lru_cache(maxsize=256)
def _collected(package: Path) -> dict[str, str]:
    """Names that a package's __init__ re-exports from first-party modules."""
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
    """The module's file in this repository's packages; None for a third-party module."""
    for room in _ROOMS:
        base = room.joinpath(*name.split("."))
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None
