"""The spec's scheduling policy applies in the simulator: priorities and tenants reach the engines' real scheduler."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.cli import app
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.cluster.scenario import MODES, Mode, Settings
from sluice_sim.policies.registry import LAWS
from sluice_sim.results.score import good_share
from sluice_sim.traces import labelled, poisson
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.cli.test_simulate_command import YAML

FAST = StepTimeModel(base=0.0085, prefill_token=4e-5, prefill_context=7.7e-9, kv_token=1.9e-7, steps=1000)
TENANTS = {"a": 0.6, "b": 0.3, "c": 0.1}
# Twice what one replica serves, and a queue that holds it: who waits is the policy's choice.
LOAD = labelled(poisson(6.0, 60, 60, 40, seed=1), high=0.2, priority=50, tenants=TENANTS, seed=1)


def under(policy: str, law: str = "sluice") -> list[RequestRecord]:
    small = spec(
        scaling={"maxReplicas": 1}, engine={"scheduling": {"policy": policy}}, admission={"maxQueueSeconds": 60}
    )
    return Fleet(small, Settings(MODEL, 32_000), LAWS[law].default()).run(LOAD).records


def test_labels_are_drawn_by_share_and_seed() -> None:
    many = labelled(poisson(20.0, 100, 10, 10, seed=2), 0.2, 50, TENANTS, seed=3)
    assert many == labelled(poisson(20.0, 100, 10, 10, seed=2), 0.2, 50, TENANTS, seed=3)
    assert sum(one.priority == 50 for one in many) / len(many) == pytest.approx(0.2, abs=0.03)
    for name, share in TENANTS.items():
        assert sum(one.tenant == name for one in many) / len(many) == pytest.approx(share, abs=0.04)


def test_under_overload_high_priority_waits_less_where_the_policy_says_so() -> None:
    high = {policy: [one for one in under(policy) if one.priority] for policy in ("fcfs", "priority")}
    assert good_share(high["priority"]) >= 0.99
    assert _mean_wait(high["priority"]) < 0.5 * _mean_wait(high["fcfs"])


def test_under_overload_a_small_tenant_waits_less_where_the_policy_is_fair() -> None:
    fair, first = ([one for one in under(policy) if one.tenant == "c"] for policy in ("fair", "fcfs"))
    assert _mean_wait(fair) < 0.8 * _mean_wait(first)


def _mean_wait(records: list[RequestRecord]) -> float:
    """For the first token, of those that had one in time."""
    waits = [one.ttft for one in records if one.ttft is not None and one.good]
    return sum(waits) / len(waits)


def test_fcfs_serves_more_requests_within_the_slo_than_priority_and_no_fewer_important_ones() -> None:
    """An important request that is served long before it is due makes those late that are due now. Prompts of 400 to
    5,000 tokens, 1.3 times what one replica serves."""
    dice, good, important = random.Random(3), {}, {}
    load = [
        replace(one, prompt=dice.choice([400, 400, 1200, 1200, 2500, 5000]), output=dice.choice([50, 150, 300]))
        for one in poisson(10.0, 40, 60, 40, seed=3)
    ]
    for policy in ("fcfs", "priority"):
        asked = spec(
            scaling={"maxReplicas": 1},
            admission={"concurrency": {"max": 256}},
            engine={"scheduling": {"policy": policy}},
        )
        records = Fleet(asked, Settings(FAST, 500_000)).run(labelled(load, 0.2, 50, TENANTS, seed=1)).records
        good[policy], important[policy] = good_share(records), good_share([one for one in records if one.priority])
    assert good["fcfs"] > good["priority"] + 0.05
    assert important["fcfs"] >= 0.99


def test_a_late_request_takes_no_capacity_from_requests_that_can_meet_their_deadline() -> None:
    sorted_out, first_come = under("fcfs"), under("fcfs", "replicas-only")
    assert good_share(sorted_out) > 3 * good_share(first_come)
    high, low = ([one for one in sorted_out if bool(one.priority) is more] for more in (True, False))
    assert good_share(high) > good_share(low) + 0.1  # who is given up first is of low priority


@pytest.mark.parametrize(("mode", "replicas"), [("exact", 1), ("exact", 2), ("coarse", 2)])
def test_a_short_queue_sheds_low_priority_first_and_each_request_ends_once(mode: Mode, replicas: int) -> None:
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


def test_coarse_mode_notes_that_it_ignores_the_scheduling_policy(tmp_path: Path) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(YAML + "  engine: {scheduling: {policy: fair}}\n", encoding="utf-8")
    options = ["--rate", "1", "--seconds", "20", "--mode"]
    said = {mode: CliRunner().invoke(app, ["simulate", str(file), *options, mode]).stdout for mode in MODES}
    assert "not by the policy fair of spec.engine.scheduling" in said["coarse"]
    assert "policy" not in said["exact"]
