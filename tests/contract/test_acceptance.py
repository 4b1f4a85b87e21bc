"""Each row of the acceptance tables has tests that exist, or says what is missing."""

import ast
from pathlib import Path

import pytest

from tests.acceptance import INGRESSES, TABLES, Row, copied_cases, rows, table_of

ROOT = Path(__file__).parents[2]


def functions_in(file: Path) -> set[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, functions)}


@pytest.mark.parametrize("table", TABLES)
def test_the_table_is_whole(table: str) -> None:
    assert [row.case for row in rows() if row.table == table] == copied_cases(table)
    assert len(copied_cases(table)) > 15


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.case[:40])
def test_the_rows_tests_exist_or_it_says_what_is_missing(row: Row) -> None:
    assert row.tests or row.missing
    for test in row.tests:
        file, _, name = test.partition("::")
        assert name in functions_in(ROOT / file), f"{test} does not exist: name the test that shows {row.case!r}"


@pytest.mark.parametrize("row", [row for row in rows() if row.table == "http"], ids=lambda row: row.case[:40])
def test_each_row_of_bad_input_over_http_has_tests_at_an_engine_and_at_a_gateway(row: Row) -> None:
    assert row.by_ingress.keys() == set(INGRESSES)
    assert all(row.by_ingress.values())


def test_each_test_whose_name_says_that_it_is_a_row_is_in_the_table() -> None:
    named = {test for row in rows() for test in row.tests}
    files = [file for folder in ("tests", "e2e") for file in (ROOT / folder).rglob("test_*.py")]
    for file in files:
        found = {f"{file.relative_to(ROOT)}::{name}" for name in functions_in(file) if name.startswith("test_row_")}
        assert found <= named


def test_the_printed_table_has_durations_failures_and_what_is_missing() -> None:
    test = "e2e/test_2_load.py::test_a_change_of_arguments_rolls_without_a_failed_request_and_ready_waits_for_it"
    lines = table_of({test: 61.4}, frozenset()).splitlines()
    (row,) = (line for line in lines if "rolling update under load" in line)
    assert row.split()[:4] == ["faults", "ok", "61", "s"]
    assert any("5,000 pods at start" in line and "missing: no node takes the pods" in line for line in lines)
    failed = table_of({test: 61.4}, frozenset({test})).splitlines()
    assert any(line.split()[1] == "FAILED" for line in failed if "rolling update" in line)
    assert sum(not line.startswith(" ") for line in lines) == len(rows())


def test_a_fault_that_lasted_less_than_ten_minutes_is_printed_with_its_seconds() -> None:
    outage = "test_none_of_thousands_of_requests_fails_without_an_api_server_and_a_full_engine_lives_on"
    test = f"e2e/test_3_each_outage.py::{outage}"
    for lasted, printed in (({test: 60.2}, "60 s"), ({}, "10 minutes")):
        lines = table_of({test: 200.0}, frozenset(), lasted).splitlines()
        for row in (f"saturated for {printed}", f"API server away {printed}, or answering"):
            assert sum(row in line for line in lines) == 1
