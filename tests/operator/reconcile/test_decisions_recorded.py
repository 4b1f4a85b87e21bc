"""One sentence per decision: the status, the Event, the log and `sluice explain` say it in the same words."""

import logging
from dataclasses import dataclass, field
from typing import Any

import pytest

from sluice.commands.explain import sentences
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.cluster.client import ClusterError, Endpoint, Object
from sluice_operator.reconcile.reconciler import Reconciler
from tests.operator.autoscaler.fleet import Engine
from tests.operator.fake_cluster import KEY, Clock, Engines, FakeCluster, cluster_with, manifest, operator, pod

LOAD, OVER, FLOOD, QUIET = 1.25, 4.0, 30.0, 0.3  # requests per second; one engine holds about 2.5
EVENTS = {"ScaledUp", "ScaledDown", "ScalingAdvised", "LimitsMoved", "RequestsRefused", "OtherWriter"}


@dataclass
class Fleet(Engines):
    """Engines that serve what comes, one behind each pod."""

    engines: dict[str, Engine] = field(default_factory=dict)

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        return self.engines[endpoint.pod].sample()


@dataclass
class Told:
    """A resource, its operator and its pods over minutes, and what people were told."""

    cluster: FakeCluster
    fleet: Fleet = field(default_factory=Fleet)
    clock: Clock = field(default_factory=Clock)
    reconciler: Reconciler = field(init=False)

    def __post_init__(self) -> None:
        self.reconciler = operator(self.cluster, self.fleet, self.clock)

    async def pass_once(self) -> None:
        await self.reconciler.reconcile(KEY)
        wanted = int(self.cluster.deployment["spec"].get("replicas", 1))
        names = sorted(self.fleet.engines, key=lambda name: int(name.removeprefix("chat-")))
        for name in names[wanted:]:
            del self.fleet.engines[name]
        for number in range(len(names), wanted):
            self.fleet.engines[f"chat-{number}"] = Engine()
        self.cluster.pods = [pod(name) for name in self.fleet.engines]

    async def run(self, seconds: float, rate: float) -> None:
        """Pass time under so many requests per second; a pass every 5 s."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            for engine in self.fleet.engines.values():
                engine.pass_time(rate / len(self.fleet.engines), 5.0)
            self.clock.now += 5.0
            await self.pass_once()

    @property
    def events(self) -> list[tuple[str, str]]:
        return [(reason, message) for reason, message, _ in self.cluster.events if reason in EVENTS]

    @property
    def recorded(self) -> list[str]:
        return [str(entry["message"]) for entry in self.cluster.status["decisions"]]


def asked(**scaling: Any) -> Object:
    return manifest(
        slo={"ttftMilliseconds": 2000, "itlMilliseconds": 100, "attainmentPercent": "99"},
        scaling={"minReplicas": 1, "maxReplicas": 2, "scaleDownStabilizationSeconds": 60} | scaling,
        admission={"concurrency": {"min": 2, "max": 64}, "maxQueueSeconds": 10},
    )


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The sentences in the log, less whose they are."""
    lines = [r.getMessage() for r in caplog.records if r.name == "sluice_operator.reconcile.reconciler"]
    return [line.removeprefix(f"{KEY.namespace}/{KEY.name}: ") for line in lines]


def same_words(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    """Each decision in the same words everywhere, in the same order."""
    assert told.recorded == [message for _, message in told.events] == said(caplog)
    stamps = [entry["time"] for entry in told.cluster.status["decisions"]]
    lines = [f"{at}  {message}" for at, message in zip(stamps, told.recorded, strict=True)]
    shown = sentences(told.cluster.resource)
    assert [line for line in shown if line.startswith(tuple(stamps))] == lines


async def test_scaling_and_rejections_have_the_same_message_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = Told(cluster_with(asked()))
    await told.pass_once()
    await told.run(60, LOAD)
    await told.run(60, OVER)
    await told.run(1200, QUIET)  # the burst is remembered for a quarter of an hour
    assert [reason for reason, _ in told.events] == ["ScaledUp", "ScaledUp", "ScaledDown"]
    await told.run(30, FLOOD)
    assert {reason for reason, _ in told.events[3:]} >= {"ScaledUp", "RequestsRefused"}
    assert any("requests rejected in" in sentence for sentence in told.recorded)
    same_words(told, caplog)


async def test_a_replica_count_that_was_written_is_reported_as_scaled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = Told(cluster_with(asked(mode="External")))
    await told.pass_once()
    told.cluster.edit(**(asked(mode="External")["spec"] | {"replicas": 2}))
    await told.run(10, LOAD)
    assert [reason for reason, _ in told.events] == ["ScaledUp", "ScaledUp"]
    assert told.recorded[-1] == "1 → 2 replicas: follows spec.replicas (mode External)."
    same_words(told, caplog)


async def test_advice_is_reported_as_advice_and_only_the_first_count_as_scaled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    told = Told(cluster_with(asked(mode="Advise")))
    await told.pass_once()
    await told.run(60, LOAD)
    await told.run(60, OVER)
    assert [reason for reason, _ in told.events][:2] == ["ScaledUp", "ScalingAdvised"]
    assert told.recorded[1].startswith("Advice (not carried out): 1 → 2 replicas: ")
    assert [entry.get("advised") for entry in told.cluster.status["decisions"]][:2] == [None, True]
    same_words(told, caplog)


async def test_unapplied_advice_is_no_external_change_when_mode_auto_begins() -> None:
    told = Told(cluster_with(asked(mode="Advise")))
    await told.pass_once()
    await told.run(60, LOAD)
    await told.run(60, OVER)
    before = len(told.events)
    told.cluster.edit(**asked()["spec"])
    await told.run(5, OVER)
    assert told.events[before:][0][1].startswith("1 → 2 replicas: ")
    assert {reason for reason, _ in told.events[before:]} <= {"ScaledUp", "LimitsMoved"}


def by_hand(cluster: FakeCluster, replicas: int, manager: str) -> None:
    """Somebody writes the Deployment's count."""
    live = cluster.deployment
    live["spec"]["replicas"] = replicas
    live["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    cluster.store.delete("Deployment", KEY.namespace, KEY.name)
    cluster.store.insert(live, cluster.resource)


@pytest.mark.parametrize(
    ("manager", "reason", "words"),
    [("kubectl", "OtherWriter", "'kubectl' changed"), ("", "ScaledUp", "stopped before it recorded the reason")],
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_an_external_write_has_the_same_message_everywhere(
    manager: str, reason: str, words: str, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told = Told(cluster_with(asked()))
    await told.pass_once()
    await told.run(20, LOAD)
    by_hand(told.cluster, 2, manager)
    if restarted:
        told.reconciler = operator(told.cluster, told.fleet, told.clock)
    await told.run(20, LOAD)
    assert [each for each, _ in told.events] == ["ScaledUp", reason]
    assert told.recorded[1].startswith("1 → 2 replicas: ") and words in told.recorded[1]
    if reason == "OtherWriter":
        assert told.cluster.condition("ScalingActive")["message"] == told.recorded[1]
    same_words(told, caplog)


async def test_mode_off_never_writes_nor_reports_the_count() -> None:
    wanted = asked(mode="Off", minReplicas=2)
    wanted["spec"]["replicas"] = 4
    told = Told(cluster_with(wanted))
    await told.pass_once()
    assert "replicas" not in told.cluster.deployment["spec"]  # the API server's default is 1
    by_hand(told.cluster, 3, "kubectl")
    await told.run(20, LOAD)
    assert told.cluster.deployment["spec"]["replicas"] == told.cluster.status["desiredReplicas"] == 3
    assert told.events == []


async def test_each_write_by_an_external_writer_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told = Told(cluster_with(asked(maxReplicas=4)))
    await told.pass_once()
    for replicas in (2, 3):
        await told.run(20, LOAD)
        by_hand(told.cluster, replicas, "kubectl")
    await told.run(20, LOAD)
    assert [each for each, _ in told.events] == ["ScaledUp", "OtherWriter", "OtherWriter"]
    same_words(told, caplog)


async def test_a_scale_down_whose_response_was_lost_starts_the_cooldown(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(cluster_with(asked(minReplicas=3, maxReplicas=3)))
    await told.pass_once()
    await told.run(60, LOAD)
    told.cluster.edit(**asked(maxReplicas=3)["spec"])
    allowed = told.cluster.apply

    async def loses_answers(manifest: Object, *, owner: Object | None = None) -> Object:
        done = await allowed(manifest, owner=owner)
        if manifest["kind"] == "Deployment" and manifest["spec"]["replicas"] == 2:
            raise ClusterError("the answer was lost")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(told.cluster, "apply", loses_answers)
        with pytest.raises(ClusterError):
            await told.run(300, QUIET)
    first = told.clock.now
    while told.cluster.deployment["spec"]["replicas"] > 1:
        await told.run(5, QUIET)
    assert told.clock.now - first >= LAW.window_seconds
    assert "stopped before it recorded the reason" in told.recorded[-2]


async def test_consecutive_limit_changes_are_one_entry_whose_numbers_match_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    told = Told(cluster_with(asked(maxReplicas=1)))
    await told.pass_once()
    await told.run(60, LOAD)
    engine = told.fleet.engines["chat-0"]
    for number, limit in enumerate((9, 6, 4)):
        engine.limit, engine.inside = limit, limit
        told.clock.now += 20
        await told.pass_once()
        if number == 0:
            same_words(told, caplog)
    assert [reason for reason, _ in told.events] == ["ScaledUp", "LimitsMoved"]  # one story
    moved = [entry for entry in told.cluster.status["decisions"] if entry["kind"] == "admission"]
    assert [(entry["from"], entry["to"]) for entry in moved] == [(6, 4)]
    assert moved[0]["message"].startswith("6 → 4 requests at once per replica: ")


async def test_a_decision_whose_status_write_failed_is_recorded_and_reported_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told = Told(cluster_with(asked()))

    async def refuses(resource: Object, status: Object) -> None:
        raise ClusterError("the API server is away")

    with monkeypatch.context() as patch:
        patch.setattr(told.cluster, "write_status", refuses)
        with pytest.raises(ClusterError):
            await told.pass_once()
    assert told.events == []
    await told.pass_once()
    assert [reason for reason, _ in told.events] == ["ScaledUp"]
    same_words(told, caplog)
