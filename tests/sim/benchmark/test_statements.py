"""A stored piece depends on the executable statements of a source file and not on its comments."""

from sluice_sim.benchmark.run.statements import code_of

SAID = '''
"""A module."""

LIMIT = 3  # requests


class Door:
    """Lets in."""

    def open(self, note: str = "# no comment") -> str:
        """Say so,

        over several lines.
        """
        # A reason.
        return f"{note!r} {LIMIT}"
'''
RUNS = """\
LIMIT = 3
class Door:
    def open(self, note: str = "# no comment") -> str:
        return f"{note!r} {LIMIT}\""""


def test_comments_docstrings_and_empty_lines_are_no_code() -> None:
    assert code_of(SAID) == RUNS


def test_comments_do_not_change_the_digest_and_numbers_do() -> None:
    assert code_of(SAID.replace("Lets in", "Keeps out").replace("A reason", "Another")) == RUNS
    assert code_of(SAID.replace("LIMIT = 3", "LIMIT = 4")) != RUNS
    assert code_of(SAID.replace("# no comment", "# a comment")) != RUNS


def test_a_string_that_is_not_a_docstring_counts_as_code() -> None:
    assert code_of('def f():\n    """Doc."""\n    return "a value"\n') == 'def f():\n    return "a value"'
    assert code_of('x = 1\n"an expression"\n') == 'x = 1\n"an expression"'


def test_a_form_feed_does_not_shift_docstring_lines() -> None:
    odd = 'x = "\u2028\x0b"\n\n\ndef f():\n    """Doc."""\n    return 1  # one\n'
    assert code_of(odd) == 'x = "\u2028\x0b"\ndef f():\n    return 1'
