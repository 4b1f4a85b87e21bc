"""The spec's scheduling policy holds in the simulator: priorities and tenants reach the engines' real scheduler."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.cli import app
from sluice_sim.fleet import Fleet
from sluice_sim.record import Record
from sluice_sim.score import good_share
from sluice_sim.settings import MODES, Mode, Settings
from sluice_sim.traces import labelled, poisson
from tests.operator.decide_fleet import MODEL, spec
from tests.sim.test_simulate_command import YAML

TENANTS = {"a": 0.6, "b": 0.3, "c": 0.1}
# Twice what one replica serves, and a queue that holds it: who waits is the policy's choice.
LOAD = labelled(poisson(6.0, 60, 60, 40, seed=1), high=0.2, priority=50, tenants=TENANTS, seed=1)


def under(policy: str) -> list[Record]:
    small = spec(
        scaling={"maxReplicas": 1}, engine={"scheduling": {"policy": policy}}, admission={"maxQueueSeconds": 60}
    )
    return Fleet(small, Settings(MODEL, 32_000)).run(LOAD).records


def test_labels_are_drawn_by_share_and_seed() -> None:
    many = labelled(poisson(20.0, 100, 10, 10, seed=2), 0.2, 50, TENANTS, seed=3)
    assert many == labelled(poisson(20.0, 100, 10, 10, seed=2), 0.2, 50, TENANTS, seed=3)
    assert sum(one.priority == 50 for one in many) / len(many) == pytest.approx(0.2, abs=0.03)
    for name, share in TENANTS.items():
        assert sum(one.tenant == name for one in many) / len(many) == pytest.approx(share, abs=0.04)


def test_under_overload_high_priority_is_served_well_only_where_the_policy_says_so() -> None:
    high = {policy: good_share([one for one in under(policy) if one.priority]) for policy in ("fcfs", "priority")}
    assert high["fcfs"] < 0.4
    assert high["priority"] > 0.9


def test_under_overload_a_small_tenant_waits_less_where_the_policy_is_fair() -> None:
    fair, first = ([one for one in under(policy) if one.tenant == "c"] for policy in ("fair", "fcfs"))
    assert good_share(fair) > good_share(first) + 0.3


@pytest.mark.parametrize(("mode", "replicas"), [("exact", 1), ("exact", 2), ("coarse", 2)])
def test_a_short_queue_sheds_low_priority_first_and_everybody_has_one_end(mode: Mode, replicas: int) -> None:
    short = spec(
        scaling={"minReplicas": replicas, "maxReplicas": replicas},
        engine={"scheduling": {"policy": "priority"}},
        admission={"maxQueueSeconds": 1},
    )
    run = Fleet(short, Settings(MODEL, 32_000, mode=mode)).run(
        labelled(poisson(6.0 * replicas, 60, 60, 40, seed=1), high=0.2, priority=50, tenants=TENANTS, seed=1)
    )
    high, low = ([one for one in run.records if (one.priority > 0) is more] for more in (True, False))
    assert all(one.refused == (one.ended_at is None) for one in run.records)
    assert sum(one.refused for one in low) > 0.3 * len(low)
    assert not any(one.refused for one in high)
    assert mode == "coarse" or good_share(high) >= 0.99  # coarse steps serve in order of arrival


def test_coarse_steps_say_that_they_keep_no_policy(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(YAML + "  engine: {scheduling: {policy: fair}}\n", encoding="utf-8")
    options = ["--rate", "1", "--seconds", "20", "--mode"]
    said = {mode: CliRunner().invoke(app, ["simulate", str(file), *options, mode]).stdout for mode in MODES}
    assert "not by the policy fair of spec.engine.scheduling" in said["coarse"]
    assert "policy" not in said["exact"]
