"""Part 2, continued: a Prometheus that has read the release since the load began shows it on the chart's dashboards."""

import time
from pathlib import Path

import pytest

from e2e.framework.cluster import say
from e2e.framework.settings import ROOT
from sluice.monitoring.alerts.rules import ALERTS
from tests.monitoring.picture import draw
from tests.monitoring.prometheus import Prometheus

DASHBOARDS = sorted((ROOT / "charts/sluice/dashboards").glob("*.json"))
PICTURES = ROOT / ".out/dashboards"
LOOK_BACK = 3600.0  # seconds; the story's part until here takes less
QUIET: dict[str, str] = {}  # panels that this story gives no data, and why


@pytest.fixture
def read(prometheus: Prometheus | None) -> Prometheus:
    """The Prometheus that has read the release."""
    if prometheus is None:
        pytest.skip("Prometheus is not installed")
    return prometheus


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_shows_what_the_cluster_did(read: Prometheus, dashboard: Path) -> None:
    now = time.time()
    began = min(
        at for one in read.query_range("up", now - LOOK_BACK, now, 15.0) for at, _ in one.points
    )  # the first scrape
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"{dashboard.stem}.png"
    counts = draw(dashboard, read, began, now, picture)
    say(f"{picture.relative_to(ROOT)}: {len(counts)} queries over {(now - began) / 60:.0f} minutes")
    assert {name for name, count in counts.items() if count == 0} <= QUIET.keys()


def test_each_alert_and_recording_rule_of_the_chart_is_evaluated(read: Prometheus) -> None:
    health = read.rules()
    assert health.keys() >= {alert.name for alert in ALERTS}
    assert {name: said for name, said in health.items() if said != "ok"} == {}
