"""The fixtures of the end-to-end suite: images, operator, namespace, model volume; created once, removed at the end."""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator

import pytest

from e2e.framework import diagnose, images, jobs, manifests, volume
from e2e.framework.cluster import RESTRICTED, Cluster, CommandFailed, Recorder, TimedOut, connect, run, say
from e2e.framework.operator_pod import CRD, Operator
from e2e.framework.settings import Settings, from_environment
from tests import acceptance

STAGE = pytest.StashKey[tuple[Cluster, str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test a timeout of an hour: the tests build on one another, and each may take minutes."""
    for item in items:
        item.add_marker(pytest.mark.timeout(3600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Print the diagnosis after a failure."""
    report = yield
    stage = item.config.stash.get(STAGE, None)
    if call.excinfo is not None and stage is not None:
        diagnose.print_everything(*stage)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the acceptance rows with the time that their tests took, fixtures included."""
    seconds: defaultdict[str, float] = defaultdict(float)
    failed = set()
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport) and report.outcome != "skipped":
            test = report.nodeid.partition("[")[0]
            seconds[test] += report.duration
            if report.failed:
                failed.add(test)
    terminalreporter.section("acceptance rows")
    terminalreporter.write_line(acceptance.table_of(seconds, frozenset(failed)))


@pytest.fixture(scope="session")
def settings() -> Settings:
    """The settings of this run."""
    for program in ("kubectl", "helm"):
        if shutil.which(program) is None:
            pytest.exit(f"make e2e needs {program} on the PATH.", returncode=2)
    return from_environment()


@pytest.fixture(scope="session")
def cluster(settings: Settings) -> Iterator[Cluster]:
    """The namespace of this run, under the restricted Pod Security standard."""
    with connect(settings.namespace) as cluster:
        run("kubectl", "create", "namespace", settings.namespace)
        run("kubectl", "label", "namespace", settings.namespace, f"{RESTRICTED}=restricted")
        try:
            yield cluster
        finally:
            if os.environ.get("KEEP") is None:
                run("kubectl", "delete", "namespace", settings.namespace, "--timeout=400s", timeout=420)


@pytest.fixture(scope="session")
def operator(cluster: Cluster, settings: Settings, pytestconfig: pytest.Config) -> Iterator[Operator]:
    """The installed operator. The model is trained on its volume while the operator's image is built and installed."""
    pytestconfig.stash[STAGE] = (cluster, settings.release)
    outside: list[tuple[str, str]] = []
    operator = Operator(cluster, settings)
    try:
        images.build_and_load(settings, "engine")
        cluster.apply(manifests.programs())
        outside = volume.make(cluster, settings.run, settings.image("engine"))
        make_model(cluster, settings)
        images.build_and_load(settings, "operator")
        operator.install()
        jobs.wait_until_done(cluster, "model", timeout=1500)
        say(jobs.account_of(cluster, "model")["said"])
        yield operator
    finally:
        if os.environ.get("KEEP") is None:
            take_away(cluster, settings, operator, outside)


def make_model(cluster: Cluster, settings: Settings) -> None:
    """Start a Job that trains the tiny model and writes the references."""
    train = f"{manifests.SLUICE} model tiny {manifests.MODEL}"
    refer = f"{manifests.PYTHON} {manifests.PROGRAMS}/references.py {manifests.MODEL} {manifests.REFERENCES} {manifests.PROMPTS}"
    command = ["sh", "-c", f"{train} && {refer}"]
    cluster.apply(manifests.client_job("model", settings.image("engine"), command, writable=True, memory="2Gi"))


def take_away(cluster: Cluster, settings: Settings, operator: Operator, outside: list[tuple[str, str]]) -> None:
    """Delete the suite's objects outside its namespace.

    Deployments are deleted first, while the operator still runs.
    """
    for step in (
        lambda: cluster.kubectl("delete", CRD, "--all", "--cascade=foreground", "--timeout=100s"),
        lambda: run("helm", "uninstall", operator.release, "--namespace", operator.namespace, "--ignore-not-found"),
        lambda: volume.erase(cluster, outside, settings.image("engine")),
        lambda: run("kubectl", "delete", "namespace", operator.namespace, "--ignore-not-found", "--wait=false"),
        lambda: [run("kubectl", "delete", *each, "--ignore-not-found", "--wait=false") for each in outside],
    ):
        try:
            step()
        except (CommandFailed, TimedOut) as left:
            say(f"could not clean up: {left}")


@pytest.fixture(scope="session")
def recorder(cluster: Cluster, operator: Operator) -> Iterator[Recorder]:
    """A recorder that watches `chat` from now on."""
    recorder = Recorder(cluster, "chat")
    recorder.start()
    yield recorder
    recorder.stop()
