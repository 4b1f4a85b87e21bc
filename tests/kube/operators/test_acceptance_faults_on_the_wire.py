"""Rows of the acceptance table on faults, by a real operator behind a server that answers as a failing API server does."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from sluice_operator.revisions.values import secret_of
from tests.kube.api_server import ApiServer
from tests.kube.operators.faulty_server import CUT, GONE, SILENT, Asked, Fault, FaultyServer, faulty
from tests.kube.operators.process import deployment, operator, wait_for
from tests.kube.specs import BASE, EDITED
from tests.kube.world import document

pytestmark = pytest.mark.timeout(400)  # stalled watches take 75 s, and an outage with a restart as long
NAMESPACES = ("on-the-wire", "on-the-wire-undisturbed")
FAST = {"SLUICE_INTERVAL_SECONDS": "1", "SLUICE_NAMESPACE": ",".join(NAMESPACES)}
RETURN = 30.0  # seconds until the operator acts again
STALL = 75.0  # seconds until a stalled watch ends the process, unless it comes back before
START = 30.0  # seconds for a process to start on a busy machine
OUTAGE = 20.0  # seconds, beyond the renew deadline of the Lease
MOST = 12.0  # requests a second while none succeeds, of one resource, the Lease and the watches of eight kinds
ASKED = 8.0  # seconds of a Retry-After, longer than the first waits of the operator's own
REST = 10.0  # seconds without a write of the status
CHANGED = "application/merge-patch+json"


@dataclass(frozen=True)
class Story:
    """One operator, what is in front of its API server, and the log of its processes."""

    server: ApiServer
    wire: FaultyServer
    log: Path

    def change(self, spec: Object) -> None:
        """The user changes the resource."""
        self.server.request("PATCH", path(contract.KIND, NAMESPACES[0], "chat"), {"spec": spec}, CHANGED)

    def replicas(self) -> int:
        """Of the Deployment; -1 without one."""
        found = deployment(self.server, NAMESPACES[0])
        return int(found["spec"]["replicas"]) if found else -1

    def placed(self) -> Object:
        """The node selector of the pods."""
        found: Object = deployment(self.server, NAMESPACES[0])["spec"]["template"]["spec"].get("nodeSelector") or {}
        return found

    def other(self) -> int:
        """A count of replicas that there is not now."""
        return 2 if self.replicas() != 2 else 3

    def scale(self, replicas: int) -> None:
        """The user asks for exactly this many."""
        self.change({"scaling": {"minReplicas": replicas, "maxReplicas": replicas}})


@pytest.fixture(scope="module")
def story(crd: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """An operator that has written the children of one resource."""
    folder = tmp_path_factory.mktemp("wire")
    for namespace in NAMESPACES:
        crd.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    more: dict[str, Any] = {"kubeconfig": folder / "kubeconfig", "log": folder / "log", "restarts": True}
    with (
        faulty(crd, folder) as wire,
        operator(crd, NAMESPACES[0], environment=FAST, **more),
    ):
        crd.request("POST", path(contract.KIND, NAMESPACES[0]), document(BASE))
        found = Story(crd, wire, folder / "log")
        wait_for("the children exist", lambda: found.replicas() == 1)
        yield found


@contextmanager
def judged(wire: FaultyServer, judge: Callable[[Asked], Fault | None]) -> Iterator[None]:
    """Faults until the block ends."""
    wire.judge = judge
    try:
        yield
    finally:
        wire.judge = lambda _: None


def is_lease(asked: Asked) -> bool:
    """True for a request of the election, which a single failure must not cost the Lease."""
    return "/leases" in asked.path


def drawn(seed: int) -> Callable[[Asked], Fault | None]:
    """Faults of one request in four: overloaded, failed, cut before or after it was carried out, a watch that is too old."""
    draw = random.Random(seed)

    def judge(asked: Asked) -> Fault | None:
        if is_lease(asked) or draw.random() > 1 / 4:
            return None
        if asked.is_watch:
            return Fault(draw.choice((GONE, 429, 500, CUT)), retry_after=1)
        return Fault(draw.choice((429, 500, 503, CUT)), retry_after=1, is_late=draw.random() < 1 / 2)

    return judge


def bare(server: ApiServer, namespace: str) -> Object:
    """What the operator has written of the Deployment, without what differs by namespace and uid."""
    found = deployment(server, namespace)
    text = str(found["spec"]).replace(secret_of(found["spec"]["template"]), "SECRET").replace(namespace, "NAMESPACE")
    return {"spec": text}


def test_row_429_500_503_and_cut_connections_on_the_wire_change_no_end(story: Story) -> None:
    def all_came() -> bool:
        faults = [fault for _, fault in story.wire.faults]
        return {429, 500, 503, CUT, GONE} <= {each.status for each in faults} and any(each.is_late for each in faults)

    with judged(story.wire, drawn(7)):
        changes = 0
        while changes < 2 or not all_came():  # how many requests a change takes is chance
            count, changes = story.other(), changes + 1
            story.scale(count)
            wait_for("the change is carried out", lambda count=count: story.replicas() == count)  # type: ignore[misc]
            story.wire.cut_watches()
        story.change(EDITED)
        wait_for("the last change is carried out", lambda: story.placed() == {"disk": "fast"})
    story.server.request("POST", path(contract.KIND, NAMESPACES[1]), document(EDITED))
    wait_for("another resource has its children", lambda: bool(deployment(story.server, NAMESPACES[1])))
    wait_for("both are equal", lambda: bare(story.server, NAMESPACES[0]) == bare(story.server, NAMESPACES[1]))
    assert "Traceback" not in story.log.read_text()


ANSWERS = {"429": Fault(429, retry_after=1), "500": Fault(500), "no answer": Fault(SILENT), "cut": Fault(CUT)}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_row_an_api_server_without_a_good_answer_is_asked_at_a_bounded_rate_and_changes_are_made_on_its_return(
    story: Story, answer: Fault
) -> None:
    count = story.other()
    with judged(story.wire, lambda _: answer):
        story.wire.cut_watches()
        began = time.monotonic()
        story.scale(count)
        wait_for("the outage has lasted", lambda: time.monotonic() - began > OUTAGE)
        halves = [len(story.wire.since(began)), len(story.wire.since(began + OUTAGE / 2))]
        assert halves[1] <= MOST * OUTAGE / 2, halves
        assert story.replicas() != count
    wait_for("the change is made", lambda: story.replicas() == count, RETURN + START)


def follows(story: Story) -> int:
    """The operator follows the watches: a change is made. Returns a count of replicas that there is not."""
    before = story.other()
    story.scale(before)
    wait_for("a change is made", lambda: story.replicas() == before)
    return story.other()


def test_row_a_change_that_stalled_watches_hide_is_made_in_time_or_the_process_starts_again(story: Story) -> None:
    count = follows(story)

    def writes_status(asked: Asked) -> bool:
        return asked.method == "PATCH" and asked.path.endswith("/status")  # its answer would show the change

    wait_for("the status rests", lambda: not any(map(writes_status, story.wire.since(time.monotonic() - REST))))
    with story.wire.stalled_watches():
        story.scale(count)
        wait_for("the change is made", lambda: story.replicas() == count, STALL + 2 * START)


def test_row_watches_whose_version_is_gone_lose_no_change(story: Story) -> None:
    gone: set[str] = set()

    def judge(asked: Asked) -> Fault | None:
        if not asked.is_watch or asked.path in gone:
            return None
        gone.add(asked.path)
        return Fault(GONE)

    count = follows(story)
    with judged(story.wire, judge):
        story.wire.cut_watches()
        wait_for("a watch was refused", lambda: any(contract.PLURAL in each for each in gone), STALL)
        story.scale(count)
        wait_for("the change is made", lambda: story.replicas() == count, STALL)


def test_row_a_write_is_not_repeated_before_the_time_that_a_429_asks_for(story: Story) -> None:
    count = follows(story)

    def is_write(asked: Asked) -> bool:
        return asked.method == "PATCH" and asked.path.endswith("/deployments/chat")

    with judged(story.wire, lambda asked: Fault(429, retry_after=int(ASKED)) if is_write(asked) else None):
        began = time.monotonic()
        story.scale(count)
        wait_for("it is tried again", lambda: sum(map(is_write, story.wire.since(began))) >= 3, 4 * ASKED + START)
    first, second, third = [each.at for each in story.wire.since(began) if is_write(each)][:3]
    assert min(second - first, third - second) >= ASKED - 0.5
    wait_for("the change is made", lambda: story.replicas() == count, RETURN + START)
