"""The structure of the source as a ratchet: folder sizes, import cycles, users of the scheduler, and avoided words.

Each number here may shrink and never grow. A test that finds less than it allows fails too, and names the new number.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCE_ROOTS: Final = ("operator", "engine", "kernels")
MOST_FILES: Final = 16  # in one folder
MOST_ENGINE_ROOT_FILES: Final = 8
SKIPPED: Final = {"__pycache__", "_native", "build", ".mypy_cache", ".ruff_cache"}

# The vocabulary of style.md: what a general reader has to guess. Word → occurrences in code, comments and identifiers.
WORDS: Final = {
    "alike": 0,
    "at hand": 0,
    "beam_steering": 0,
    "bearable": 0,
    "believe": 0,
    "blink": 0,
    "bounds_of": 0,
    "chooser": 0,
    "crowded": 0,
    "departed": 0,
    "door": 0,
    "eased": 0,
    "elder": 0,
    "enginegone": 0,
    "enginelink": 0,
    "experience": 0,
    "farewell": 0,
    "forgive": 0,
    "given back": 0,
    "given_up": 0,
    "gives way": 0,
    "growing_result": 0,
    "hang_up": 0,
    "healing": 0,
    "heir": 0,
    "held_back": 0,
    "herd": 0,
    "homeless": 0,
    "hopeless": 0,
    "judgement": 0,
    "kubeworld": 0,
    "limits_message": 0,
    "localworld": 0,
    "logprob_trail": 0,
    "lost_share": 0,
    "mend": 0,
    "mourn": 0,
    "nature": 0,
    "neighbour": 0,
    "nobody": 0,
    "other_hand": 0,
    "outlook": 0,
    "overtaken_for": 0,
    "parked": 0,
    "physics": 0,
    "preparer": 0,
    "promise": 0,
    "prudence": 0,
    "recalled": 0,
    "retarget": 0,
    "retiring": 0,
    "rival": 0,
    "sibling": 0,
    "sister": 0,
    "somebody": 0,
    "starting_limits": 0,
    "stranger": 0,
    "taken_in": 0,
    "together_with": 0,
    "took_its_time": 0,
    "turned_away": 0,
    "turnedaway": 0,
    "twin": 0,
    "unbroken": 0,
    "unheard": 0,
    "unheld": 0,
    "victim": 0,
    "weather": 0,
    "whoever": 0,
    "wholerunner": 0,
    "wish": 0,
    "world": 0,
}
TEXT: Final = {".py", ".c", ".h", ".yaml", ".tpl"}
PROSE_ROOTS: Final = (*SOURCE_ROOTS, "charts", "crds")


def folders() -> Iterator[Path]:
    for root in SOURCE_ROOTS:
        for folder in (ROOT / root, *(ROOT / root).rglob("*")):
            if folder.is_dir() and not SKIPPED & set(folder.parts):
                yield folder


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and path.suffix not in {".pyc", ".so"}]


def modules() -> dict[str, Path]:
    """Dotted name → file, of everything under the source roots."""
    found: dict[str, Path] = {}
    for root in SOURCE_ROOTS:
        for path in (ROOT / root).rglob("*.py"):
            parts = path.relative_to(ROOT / root).with_suffix("").parts
            if not SKIPPED & set(parts):
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(tree: ast.Module, known: dict[str, Path]) -> set[str]:
    """The modules of ours that a file imports at its top level, also those under TYPE_CHECKING."""
    found: set[str] = set()
    nodes: list[ast.stmt] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If):
            nodes += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try):
            nodes += [*node.body, *(one for handler in node.handlers for one in handler.body)]
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in known else node.module)
    return found & known.keys()


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected sets of more than one module (Tarjan 1972, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for start in sorted(edges):
        if start in order:
            continue
        work = [(start, iter(sorted(edges[start])))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], order[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    members: list[str] = []
                    while not members or members[-1] != node:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                    if len(members) > 1:
                        found.append(sorted(members))
    return found


def test_the_search_for_cycles_finds_one() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}) == [["b", "c"]]


def test_no_folder_holds_more_than_sixteen_files() -> None:
    sizes = {str(folder.relative_to(ROOT)): len(files_in(folder)) for folder in folders()}
    assert len(sizes) > 20
    assert {name: size for name, size in sizes.items() if size > MOST_FILES} == {}


def test_the_root_of_the_engine_holds_at_most_eight_files() -> None:
    assert len(files_in(ROOT / "engine" / "sluice_engine")) <= MOST_ENGINE_ROOT_FILES


def test_no_module_imports_itself_through_others() -> None:
    known = modules()
    assert len(known) > 200
    edges = {name: imported(ast.parse(path.read_text()), known) for name, path in known.items()}
    assert cycles(edges) == []


@pytest.mark.parametrize("package", ["scheduler", "kvcache", "control", "speculation"])
def test_rules_take_data_and_never_the_scheduler(package: str) -> None:
    takers = []
    files = sorted((ROOT / "engine" / "sluice_engine" / package).rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                said = [ast.unparse(arg.annotation).strip("'\"") for arg in every if arg.annotation is not None]
                takers += [f"{path.name}:{node.name}" for kind in said if re.search(r"\bScheduler\b", kind)]
    assert takers == []


def occurrences() -> Counter[str]:
    """How often each word stands in the sources, in any case, as a word or a part of a snake_case name."""
    found: Counter[str] = Counter()
    patterns = {word: re.compile(rf"(?<![a-z]){word}(?:e?s|e?d|ing)?(?![a-z])", re.IGNORECASE) for word in WORDS}
    for root in PROSE_ROOTS:
        for path in sorted((ROOT / root).rglob("*")):
            if path.is_file() and path.suffix in TEXT and not SKIPPED & set(path.parts):
                text = path.read_text()
                for word, pattern in patterns.items():
                    found[word] += len(pattern.findall(text))
    return found


def test_words_outside_the_vocabulary_only_become_fewer() -> None:
    found = occurrences()
    more = {word: (found[word], most) for word, most in WORDS.items() if found[word] > most}
    assert more == {}, "style.md has the field's term for each of these (found, allowed)"
    fewer = {word: found[word] for word, most in WORDS.items() if found[word] < most}
    assert fewer == {}, "well done: lower the numbers in WORDS to these"
