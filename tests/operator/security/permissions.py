"""The permissions that the chart's roles give to a ServiceAccount, one per API group, resource and verb."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource. `namespace` is empty for all namespaces, `names` for all objects."""

    role: str
    namespace: str
    group: str
    resource: str
    verb: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.role}: {self.verb} {self.resource}"


@dataclass(frozen=True, slots=True)
class Attributes:
    """What an API server authorizes: one request, with the name and subresource where it has them."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def is_allowed_by(self, permission: Permission) -> bool:
        """As RBAC decides it: a Role covers its own namespace, and a list of names only requests that name one."""
        return (
            (permission.group, permission.resource, permission.verb) == (self.group, self.resource, self.verb)
            and permission.namespace in ("", self.namespace)
            and (not permission.names or self.name in permission.names)
        )


def permissions_of(account: str, namespace: str, objects: Iterable[Object]) -> frozenset[Permission]:
    """The permissions of this ServiceAccount by the bindings and roles among the objects."""
    objects = list(objects)
    roles = {_key(each["kind"], each): each["rules"] for each in objects if each["kind"] in ("Role", "ClusterRole")}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    bindings = [each for each in objects if each["kind"].endswith("RoleBinding") and subject in each["subjects"]]
    return frozenset(
        Permission(name, scope, group, resource, verb, tuple(rule.get("resourceNames") or ()))
        for binding in bindings
        for (kind, scope, name) in [_key(binding["roleRef"]["kind"], binding, binding["roleRef"]["name"])]
        for rule in roles[kind, scope, name]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def _key(kind: str, thing: Object, name: str = "") -> tuple[str, str, str]:
    return kind, thing["metadata"].get("namespace", ""), name or thing["metadata"]["name"]
