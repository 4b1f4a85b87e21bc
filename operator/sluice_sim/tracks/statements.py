"""A source file as what it does: without comments, docstrings and empty lines, which no measurement depends on."""

import ast
import io
import tokenize

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_of(text: str) -> str:
    """The lines that run, as they are written: the same on every Python, which a dump of the tree is not. Raises
    SyntaxError."""
    lines = text.split("\n")  # as Python counts them: splitlines also ends one at a form feed
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column]
    for first, last in _docstrings(ast.parse(text)):
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _docstrings(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last line of each; the formatter gives each its own."""
    return [
        (node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno)
        for node in ast.walk(tree)
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
    ]
