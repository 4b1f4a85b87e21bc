"""The executable text of a source file. Comments, docstrings and empty lines do not affect any measurement."""

import ast
import io
import tokenize

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_of(text: str) -> str:
    """The executable lines as written. They are the same on every Python version; a dump of the AST is not.

    Raises SyntaxError.
    """
    lines = text.split("\n")  # `splitlines` would also split at a form feed, which Python does not
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            lines[line - 1] = lines[line - 1][:column]
    for first, last in _docstrings(ast.parse(text)):
        lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _docstrings(tree: ast.Module) -> list[tuple[int, int]]:
    """First and last line of each docstring; the formatter puts each on lines of its own."""
    return [
        (node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno)
        for node in ast.walk(tree)
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
    ]
