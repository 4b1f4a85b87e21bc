"""The operator's passes over real child processes: what Ready says, and which token an engine is started with."""

from pathlib import Path

from sluice import contract
from sluice_operator.cluster.client import Key, Object
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import Settings
from tests.operator.cluster.local.test_local_cluster import local_cluster, tokens
from tests.operator.fake_cluster import KEY_OF_OPERATOR, Clock, Engines, manifest

FILE = {"model": {"uri": "file:///models/tiny"}}


async def test_ready_follows_the_pods_of_the_newest_spec_and_engines_hold_the_derived_token(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as watch:
        document: Object = manifest(**FILE)
        document["metadata"]["namespace"] = "default"
        watch.cluster.put(document)
        engines, clock = Engines(), Clock()
        context = Context(watch.cluster, engines, Settings(), KEY_OF_OPERATOR, clock=clock, wall=clock.wall)
        reconciler = Reconciler(context)

        async def ready() -> tuple[str, str]:
            clock.now += 5
            await reconciler.reconcile(Key("default", "chat"))
            status = ((await watch.cluster.get(contract.KIND, "default", "chat")) or {})["status"]
            found = next(each for each in status["conditions"] if each["type"] == "Ready")
            return found["status"], found["reason"]

        assert await ready() == ("False", "Starting")
        old = {pod["metadata"]["name"] for pod in await watch.until_ready(1)}
        assert await ready() == ("True", "Serving")
        assert {token for _, token, _ in engines.patched} == {token for token, _ in tokens(tmp_path)} != set()
        watch.cluster.put(document | {"spec": document["spec"] | {"rollout": {"drainSeconds": 7}}})
        assert await ready() == ("False", "RollingOut")
        await watch.until(lambda pods: len(pods) == 1 and not old & {pod["metadata"]["name"] for pod in pods})
        await watch.until_ready(1)
        assert await ready() == ("True", "Serving")
