"""Product code that a reader must not have to look for: checks by assert, code in data, a shell, code of a model's author.

With PYTHONOPTIMIZE=1 asserts are not executed. ruff's rules find most of these too, but a `noqa` hides a place from them.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = sorted(path for root in ("operator", "engine", "kernels") for path in (ROOT / root).rglob("*.py"))
BANNED_CALLS: Final = frozenset(
    [
        "eval",
        "exec",
        "compile",
        "__import__",
        "os.system",
        "os.popen",
        "yaml.load",
        "yaml.load_all",
        "yaml.unsafe_load",
        "yaml.full_load",
        "torch.load",
        "numpy.load",
        "np.load",
        "marshal.load",
        "marshal.loads",
        "pickle.load",
        "pickle.loads",
        "pickle.Unpickler",
        "shelve.open",
        "joblib.load",
    ]
)
BANNED_MODULES: Final = frozenset({"pickle", "cPickle", "dill", "marshal", "shelve", "cloudpickle", "joblib"})
BANNED_ARGUMENTS: Final = frozenset({"trust_remote_code", "shell", "allow_pickle"})
# The simulator restores a fleet from bytes that its own process has written, and that never leave it.
ALLOWED: Final = {
    "operator/sluice_sim/cluster/fleet.py": {"import pickle", "pickle.loads"},
}


def found_in(tree: ast.Module) -> Iterator[str]:
    """What is banned in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert():
                yield f"assert in line {node.lineno}"
            case ast.Import():
                yield from (f"import {each.name}" for each in node.names if each.name in BANNED_MODULES)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in BANNED_MODULES:
                yield f"import {module}"
            case ast.Call():
                if (name := ast.unparse(node.func)) in BANNED_CALLS:
                    yield name
                yield from (
                    f"{each.arg}={ast.unparse(each.value)}"
                    for each in node.keywords
                    if each.arg in BANNED_ARGUMENTS and ast.unparse(each.value) != "False"
                )


def test_product_code_has_none_of_the_banned_names() -> None:
    found = {str(path.relative_to(ROOT)): set(found_in(ast.parse(path.read_text()))) for path in PRODUCT}
    assert len(found) > 300
    assert {name: banned for name, banned in found.items() if banned} == ALLOWED


@pytest.mark.parametrize(
    ("code", "banned"),
    [
        ("assert x", "assert in line 1"),
        ("eval(text)", "eval"),
        ("import pickle", "import pickle"),
        ("from pickle import loads", "import pickle"),
        ("torch.load(path)", "torch.load"),
        ("yaml.load(text, Loader=Loader)", "yaml.load"),
        ("AutoModel.from_pretrained(name, trust_remote_code=True)", "trust_remote_code=True"),
        ("subprocess.run(text, shell=wanted)", "shell=wanted"),
    ],
)
def test_each_kind_is_found(code: str, banned: str) -> None:
    assert set(found_in(ast.parse(code))) == {banned}


def test_what_is_safe_is_taken() -> None:
    code = "model.eval()\nre.compile(text)\nyaml.safe_load(text)\nload(name, trust_remote_code=False)"
    assert list(found_in(ast.parse(code))) == []
