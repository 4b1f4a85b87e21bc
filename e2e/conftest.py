"""The fixtures of the end-to-end suite: images, operator, namespace, model volume; created once, removed at the end.

With KEEP=1 they stay, and RUN=<run> continues on them with further tests, e.g. `RUN=1a2b3c pytest e2e -k canary`.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from e2e.framework import diagnose, images, manifests, model, volume
from e2e.framework.cluster import RESTRICTED, Cluster, CommandFailed, Object, Recorder, TimedOut, connect, run, say
from e2e.framework.operator_pod import CRD, Operator
from e2e.framework.settings import Settings, from_environment
from tests import acceptance
from tests.monitoring.on_cluster import Targets, configuration
from tests.monitoring.prometheus import Prometheus, is_installed, running

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
    failed, lasted = set(), dict[str, float]()
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport) and report.outcome != "skipped":
            test = report.nodeid.partition("[")[0]
            seconds[test] += report.duration
            for name, value in report.user_properties:
                if name == acceptance.LASTED:
                    lasted[test] = float(str(value))
            if report.failed:
                failed.add(test)
    terminalreporter.section("acceptance rows")
    terminalreporter.write_line(acceptance.table_of(seconds, frozenset(failed), lasted))


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
        if not settings.is_continued:
            run("kubectl", "create", "namespace", settings.namespace)
            run("kubectl", "label", "namespace", settings.namespace, f"{RESTRICTED}=restricted")
        say(f"RUN={settings.run}")
        try:
            yield cluster
        finally:
            if not stays(settings):
                run("kubectl", "delete", "namespace", settings.namespace, "--timeout=400s", timeout=420)


@pytest.fixture(scope="session")
def operator(cluster: Cluster, settings: Settings, pytestconfig: pytest.Config) -> Iterator[Operator]:
    """The installed operator, and the model on its volume."""
    pytestconfig.stash[STAGE] = (cluster, settings.release)
    outside: list[tuple[str, str]] = []
    operator = Operator(cluster, settings)
    try:
        cluster.apply(manifests.programs())
        if not settings.is_continued:
            images.make(settings)
            outside = volume.make(cluster, settings.run, settings.image("engine"))
            model.make(cluster, settings.image("engine"))
            operator.install()
        yield operator
    finally:
        if not stays(settings):
            take_away(cluster, settings, operator, outside)


def stays(settings: Settings) -> bool:
    """True if the suite's objects stay at the end."""
    return settings.is_continued or os.environ.get("KEEP") is not None


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


@pytest.fixture(scope="session")
def prometheus(
    cluster: Cluster, operator: Operator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus | None]:
    """A Prometheus that reads all pods of the release from now on; None where it is not installed."""
    folder = tmp_path_factory.mktemp("prometheus")

    def pods() -> list[Object]:
        try:
            found = [cluster.get(f"/api/v1/namespaces/{name}/pods") for name in (cluster.namespace, operator.namespace)]
        except TimedOut:  # the API server is away, and with it the way to the pods
            return []
        return [pod for each in found if each is not None for pod in each["items"]]

    with running(folder, "# EOF\n", configuration(folder)) if is_installed() else nullcontext() as server:
        written = Targets(folder, cluster.api.removeprefix("http://"), pods)
        written.start()
        try:
            yield server
        finally:
            written.stop()
