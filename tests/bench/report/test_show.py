"""The benchmark's output, and that a failure cannot look like success."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.report import figure, measured_code, show
from tests.bench.report.row import Report, Row, at_least, at_most
from tests.bench.report.show import Part, Say


def part(name: str, *rows: Row) -> Part:
    def measure(out: Path, say: Say) -> Report:
        say("measuring")
        return Report(rows, {"number": 3})

    return Part(name, measure)


def broken(out: Path, say: Say) -> Report:
    raise OSError("no such engine")


def test_every_row_met_or_recorded_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "bench.json"
    assert show.run([part("one", at_least("speed", 2.0, 1.5), Row("seen", "3 tokens/s"))], tmp_path, to) == 0
    found = json.loads(to.read_text())
    assert found["good"] and found["parts"]["one"]["data"] == {"number": 3}
    assert [row["verdict"] for row in found["parts"]["one"]["rows"]] == ["met", "recorded"]
    assert "speed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "row", [at_least("x", 1.0, 1.5), at_most("x", 2.0, 1.5), at_least("x", None, 1.5), Row("x", failed="gone")]
)
def test_a_missed_criterion_and_a_missing_number_are_exit_code_1(tmp_path: Path, row: Row) -> None:
    assert not row.good
    assert show.run([part("one", Row("seen", "3")), part("two", row)], tmp_path, tmp_path / "bench.json") == 1


def test_a_part_that_cannot_be_measured_is_a_failed_row_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "bench.json"
    assert show.run([Part("bad", broken), part("good", Row("seen", "3"))], tmp_path, to) == 1
    parts = json.loads(to.read_text())["parts"]
    assert parts["bad"]["rows"][0]["failed"] == "OSError: no such engine"
    assert parts["good"]["rows"][0]["verdict"] == "recorded"
    assert "FAILED" in capsys.readouterr().out


def test_an_interrupted_run_has_written_the_parts_before(tmp_path: Path) -> None:
    def interrupted(out: Path, say: Say) -> Report:
        raise KeyboardInterrupt

    to = tmp_path / "bench.json"
    with pytest.raises(KeyboardInterrupt):
        show.run([part("one", Row("seen", "3")), Part("two", interrupted)], tmp_path, to)
    assert json.loads(to.read_text())["parts"].keys() == {"one"}


def test_a_plot_names_the_processor_and_is_a_picture(tmp_path: Path) -> None:
    with figure.drawing("a title", tmp_path / "sub" / "plot.png", rows=2) as axes:
        axes[0].plot([1, 2], [3, 4])
    assert (tmp_path / "sub" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_the_json_says_which_code_measured_and_a_table_of_other_code_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "bench.json"
    show.run([part("one", Row("seen", "3"))], tmp_path, to)
    now = measured_code.describe()
    assert json.loads(to.read_text())["code"] == {"digest": now.digest, "commit": now.commit}
    assert now.digest[:10] in capsys.readouterr().out
    console = Console(width=200)

    def shown(other: measured_code.Code) -> str:
        with console.capture() as captured:
            console.print(show.stored(to, other))
        return " ".join(captured.get().split())

    assert "one*" not in shown(now) and "measured by other code" not in shown(now)
    marked = shown(measured_code.Code("f" * 20, None))
    assert "one*" in marked and f"* measured by other code than this: {now.digest[:10]}" in marked
    found = json.loads(to.read_text())
    del found["code"]
    to.write_text(json.dumps(found))
    assert "one*" in shown(now) and "than this: unknown" in shown(now)


def test_the_digest_of_the_code_changes_with_what_is_measured(tmp_path: Path) -> None:
    def of(name: str, c: str, python: str) -> measured_code.Code:
        for path, text in (("engine/native/a.c", c), ("operator/sluice_law/b.py", python)):
            (tmp_path / name / path).parent.mkdir(parents=True)
            (tmp_path / name / path).write_text(text)
        return measured_code.describe(tmp_path / name)

    first = of("first", "int a;", "B = 1  # one\n")
    assert of("commented", "int a;", '"""B."""\nB = 1\n') == first
    assert len({first, of("other c", "long a;", "B = 1\n"), of("other python", "int a;", "B = 2\n")}) == 3


@pytest.mark.parametrize("name", ["bench.json", "avx2.json", "xeon.json", "xeon-throughput.json", "fidelity.json"])
def test_committed_results_say_which_code_measured_them(name: str) -> None:
    found = json.loads((Path(__file__).parents[1] / "results" / name).read_text())["code"]
    assert len(found["digest"]) == 20 and found["commit"]
