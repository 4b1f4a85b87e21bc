"""The picture of a run: attainment as one level per interval."""

import re
from pathlib import Path
from xml.etree import ElementTree

from sluice_sim.cluster.request import RequestRecord
from sluice_sim.results.picture import GREEN, draw
from sluice_sim.results.run import FleetSample, Run
from tests.operator.autoscaler.fleet import spec

SVG = "{http://www.w3.org/2000/svg}"


def attainment_path(file: Path) -> list[tuple[str, float, float]]:
    """The path of the attainment in the SVG: (M or L, x, y) of each point that differs from the one before."""
    drawn = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    panel = next(one for one in drawn.iter(f"{SVG}g") if one.get("id") == "axes_3")
    lines = [one for one in panel.iter(f"{SVG}path") if f"stroke: {GREEN}" in one.get("style", "")]
    found = re.findall(r"([ML]) ([-\d.]+) ([-\d.]+)", lines[0].get("d", ""))
    points = [(kind, float(x), float(y)) for kind, x, y in found]
    return [
        one for before, one in zip([None, *points], points, strict=False) if before is None or before[1:] != one[1:]
    ]


def test_attainment_is_a_level_per_interval_with_gaps_where_no_request_arrived(tmp_path: Path) -> None:
    """Intervals of 5 s: all good, half good, none arrived, all good."""
    good = ((1.0, True), (6.0, True), (7.0, False), (16.0, True))
    run = Run(records=[RequestRecord(at, 1, 1, good=met) for at, met in good], seconds=20.0)
    run.fleet_samples += [FleetSample(at, 1, 1, 0, 0, 0.0) for at in (0.0, 20.0)]
    run.desired += [(0.0, 1)]
    draw(run, spec(), "title", tmp_path / "run.svg")
    path = attainment_path(tmp_path / "run.svg")
    assert [kind for kind, _, _ in path] == ["M", "L", "L", "L", "M", "L"]
    (_, begin, whole), (_, at, level), (_, fall, half), (_, end, low), (_, again, back), (_, last, top) = path
    assert whole == level == back == top < half == low  # SVG's y grows downwards
    assert at == fall and begin < at < end < again < last
    assert abs((again - end) - (end - at)) < 0.01  # the gap is as wide as an interval
