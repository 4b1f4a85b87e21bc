"""The cache under stale, dropped and reordered events: it never goes back behind the operator's own writes."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sluice import contract
from sluice_operator.cluster.cache import Feed, ObjectCache
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.pod_status import accelerators, canary_revision

NAMES = ("a", "b")
KIND = "Service"


def thing(name: str, version: int, **metadata: Any) -> Object:
    labels = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: "chat"}
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version), "labels": labels} | metadata}


@dataclass
class ApiServer:
    """Objects by name at their version, and every change as an event."""

    version: int = 10
    live: dict[str, int] = field(default_factory=dict)
    history: list[tuple[str, Object]] = field(default_factory=list)

    def write(self, name: str) -> Object:
        self.version += 1
        self.history.append(("MODIFIED" if name in self.live else "ADDED", thing(name, self.version)))
        self.live[name] = self.version
        return thing(name, self.version)

    def delete(self, name: str) -> None:
        self.version += 1
        del self.live[name]
        self.history.append(("DELETED", thing(name, self.version)))


class Watched(RuleBasedStateMachine):
    """Others write and delete; any event may come late, twice, in any order, or never; lists are complete."""

    def __init__(self) -> None:
        super().__init__()
        self.server, self.cache = ApiServer(), ObjectCache([KIND])
        self.woken: list[Key] = []
        self.feed = Feed(self.cache, self.woken.append)
        self.seen: dict[str, int] = {}  # the newest version that the cache was shown of each object
        self.cache.replace(KIND, [], "10")

    @rule(name=st.sampled_from(NAMES))
    def another_writer_changes_it(self, name: str) -> None:
        self.server.write(name)

    @rule(name=st.sampled_from(NAMES))
    def another_writer_deletes_it(self, name: str) -> None:
        if name in self.server.live:
            self.server.delete(name)

    @rule(name=st.sampled_from(NAMES))
    def the_operator_writes_and_sees_its_write(self, name: str) -> None:
        written = self.server.write(name)
        self.cache.put(KIND, written)
        self.seen[name] = self.server.version
        assert self.cache.version(KIND, "ns", name) == str(self.server.version)

    @rule(name=st.sampled_from(NAMES))
    def the_operator_deletes_and_sees_the_deletion(self, name: str) -> None:
        known = self.cache.version(KIND, "ns", name)
        if name in self.server.live and known == str(self.server.live[name]):  # the precondition holds
            self.server.delete(name)
            self.cache.forget(KIND, "ns", name)
            assert self.cache.get(KIND, "ns", name) is None

    @rule(data=st.data())
    def the_watch_delivers_any_event(self, data: st.DataObject) -> None:
        if self.server.history:
            change, event = data.draw(st.sampled_from(self.server.history))
            name, version = event["metadata"]["name"], int(event["metadata"]["resourceVersion"])
            before = self.cache.version(KIND, "ns", name)
            self.woken.clear()
            self.feed.event(KIND, change, event)
            assert bool(self.woken) == (self.cache.version(KIND, "ns", name) != before)
            self.seen[name] = max(self.seen.get(name, 0), version)

    @rule()
    def it_is_listed_again(self) -> None:
        listed = [thing(name, version) for name, version in self.server.live.items()]
        self.cache.replace(KIND, listed, str(self.server.version))
        assert {name: self.cache.version(KIND, "ns", name) for name in NAMES} == {
            name: str(self.server.live.get(name, "")) for name in NAMES
        }
        self.seen = {name: self.server.live.get(name, self.server.version) for name in NAMES}

    @invariant()
    def nothing_is_older_than_what_was_seen(self) -> None:
        for name in NAMES:
            version = self.cache.version(KIND, "ns", name)
            assert not version or int(version) >= self.seen.get(name, 0)


TestWatched = Watched.TestCase


def owned(name: str, version: int, uid: str) -> Object:
    return thing(name, version, ownerReferences=[{"uid": uid, "controller": True}])


def test_objects_are_found_by_their_controller() -> None:
    cache = ObjectCache([KIND])
    assert not cache.holds(KIND)
    cache.replace(KIND, [owned("a", 1, "x"), owned("b", 2, "y")], "2")
    cache.put(KIND, owned("c", 3, "x"))
    cache.put(KIND, owned("b", 4, "x"))
    assert [each["metadata"]["name"] for each in cache.controlled_by(KIND, "x")] == ["a", "b", "c"]
    assert cache.controlled_by(KIND, "y") == [] and cache.holds(KIND)


def test_resources_are_found_by_their_served_name() -> None:
    cache = ObjectCache([contract.KIND])
    cache.put(contract.KIND, thing("a", 1) | {"spec": {"model": {"servedName": "llama"}}})
    cache.put(contract.KIND, thing("llama", 2))
    cache.put(contract.KIND, thing("c", 3) | {"spec": {"model": "broken"}})
    assert [each["metadata"]["name"] for each in cache.serving("ns", "llama")] == ["a", "llama"]
    assert cache.serving("other", "llama") == []


def test_the_oldest_resource_of_a_served_name_is_known_over_all_namespaces() -> None:
    def served(name: str, version: int, namespace: str, second: int, served_name: str = "llama") -> Object:
        found = thing(name, version) | {"spec": {"model": {"servedName": served_name}}}
        found["metadata"] |= {"namespace": namespace, "creationTimestamp": f"2026-11-01T08:00:0{second}Z"}
        return found

    cache = ObjectCache([contract.KIND])
    for each in (served("b", 1, "ns", 5), served("a", 2, "team", 5), served("a", 3, "apps", 6)):
        cache.put(contract.KIND, each)
    assert cache.oldest_serving("llama") == Key("team", "a")
    cache.put(contract.KIND, served("a", 4, "team", 5, "renamed"))
    assert (cache.oldest_serving("llama"), cache.oldest_serving("renamed")) == (Key("ns", "b"), Key("team", "a"))
    cache.remove(contract.KIND, served("b", 5, "ns", 5))
    assert (cache.oldest_serving("llama"), cache.oldest_serving("none")) == (Key("apps", "a"), None)


def test_a_reader_cannot_change_the_cache() -> None:
    cache = ObjectCache([KIND])
    cache.put(KIND, thing("a", 1))
    (cache.get(KIND, "ns", "a") or {})["metadata"]["name"] = "b"
    assert (cache.get(KIND, "ns", "a") or {})["metadata"]["name"] == "a"


def test_a_list_wakes_the_resources_whose_objects_it_changed() -> None:
    cache = ObjectCache([KIND])
    assert cache.replace(KIND, [thing("a", 1), thing("b", 2)], "2") == {Key("ns", "chat")}
    assert cache.replace(KIND, [thing("a", 1), thing("b", 2)], "5") == set()
    assert cache.replace(KIND, [thing("a", 1)], "6") == {Key("ns", "chat")}


def test_pods_keep_what_reconcile_reads_and_nothing_else() -> None:
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    read = {"name": "engine", "args": ["serve", "hf://m"], "resources": limits}
    container = read | {"env": [{"name": "A", "value": "x" * 1000}], "resources": limits | {"requests": {"cpu": "1"}}}
    read_annotations = {contract.ANNOTATION_DELETION_COST: "-1", contract.ANNOTATION_TEMPLATE: "30843f7ea565ea48"}
    annotations, labels = read_annotations | {"b": "c"}, {contract.LABEL_REVISION: contract.REVISION_CANARY}
    pod = thing("a", 1, annotations=annotations, labels=labels, managedFields=[{"manager": "x"}])
    pod |= {"spec": {"nodeName": "n", "containers": [container], "volumes": []}, "status": {"podIP": "10.0.0.1"}}
    cache = ObjectCache(["Pod"])
    cache.put("Pod", pod)
    kept = cache.get("Pod", "ns", "a") or {}
    assert kept["spec"] == {"nodeName": "n", "containers": [read]}
    assert accelerators(kept["spec"]) == {"nvidia.com/gpu": 2}
    assert kept["metadata"]["annotations"] == read_annotations
    assert canary_revision(kept) == canary_revision(pod) == "30843f7ea565ea48"
    assert kept["status"] == {"podIP": "10.0.0.1"} and "managedFields" not in kept["metadata"]


def test_a_deployment_keeps_who_owns_its_replicas() -> None:
    owner = {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}, "f:template": {}}}}
    other = {"manager": "x", "operation": "Update", "fieldsV1": {"f:metadata": {}}}
    cache = ObjectCache(["Deployment"])
    cache.put("Deployment", thing("a", 1, managedFields=[owner, other]) | {"spec": {"replicas": 1}})
    kept = owner | {"fieldsV1": {"f:spec": {"f:replicas": {}}}}
    assert (cache.get("Deployment", "ns", "a") or {})["metadata"]["managedFields"] == [kept]
