"""What an installation of the chart needs of its user: to create its objects, and to hold each right that its roles grant.

The API server refuses a role with a right that its creator lacks (privilege escalation prevention), so both are needed.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple


class Permission(NamedTuple):
    """One verb on one resource. `name`: only on the object of this name."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def attributes(self, namespace: str) -> dict[str, str]:
        """As the resourceAttributes of an access review; an empty namespace means all."""
        resource, _, subresource = self.resource.partition("/")
        return {
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "verb": self.verb,
            "name": self.name,
            "namespace": "" if self.resource in CLUSTER_SCOPED else namespace,
        }

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f".{self.group}" if self.group else "")


CLUSTER_SCOPED: Final = frozenset({"customresourcedefinitions", "clusterroles", "clusterrolebindings"})
_RBAC: Final = "rbac.authorization.k8s.io"

# The kinds of the chart's templates.
CREATED: Final = (
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    (_RBAC, "clusterroles"),
    (_RBAC, "clusterrolebindings"),
    (_RBAC, "roles"),
    (_RBAC, "rolebindings"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "deployments"),
    ("policy", "poddisruptionbudgets"),
    ("networking.k8s.io", "networkpolicies"),
)

# The rules of the chart's roles: group, resources, verbs, name.
GRANTED: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...], str], ...]] = (
    ("sluice.dev", ("llmdeployments",), ("get", "list", "watch", "create", "update", "patch", "delete"), ""),
    ("sluice.dev", ("llmdeployments/status",), ("get", "list", "watch", "patch"), ""),
    ("sluice.dev", ("llmdeployments/scale",), ("get", "list", "watch", "create", "update", "patch", "delete"), ""),
    ("apps", ("deployments",), ("get", "list", "watch", "create", "patch", "delete"), ""),
    ("apps", ("replicasets",), ("list", "watch"), ""),
    ("", ("serviceaccounts",), ("get", "list", "watch", "create", "patch"), ""),
    ("", ("configmaps",), ("get", "list", "watch", "create", "patch"), ""),
    ("", ("services",), ("get", "list", "watch", "create", "patch", "delete"), ""),
    ("policy", ("poddisruptionbudgets",), ("get", "list", "watch", "create", "patch"), ""),
    ("networking.k8s.io", ("networkpolicies",), ("get", "list", "watch", "create", "patch", "delete"), ""),
    ("monitoring.coreos.com", ("podmonitors",), ("get", "list", "create", "patch", "delete"), ""),
    ("", ("pods",), ("get", "list", "watch", "patch", "delete"), ""),
    ("", ("secrets", "events"), ("create",), ""),
    ("", ("namespaces",), ("get", "list", "watch"), ""),
    ("", ("secrets",), ("get",), "sluice-key"),
    ("", ("secrets",), ("get", "patch"), "sluice-keyring"),
    ("", ("secrets",), ("get", "patch"), "sluice-read"),
    ("coordination.k8s.io", ("leases",), ("create",), ""),
    ("coordination.k8s.io", ("leases",), ("get", "update"), "sluice"),
    ("discovery.k8s.io", ("endpointslices",), ("list", "watch"), ""),
)


def needed() -> tuple[Permission, ...]:
    """Every permission, once."""
    return tuple(dict.fromkeys((*_created(), *_granted())))


def _created() -> Iterator[Permission]:
    for group, resource in CREATED:
        yield Permission(group, resource, "create")


def _granted() -> Iterator[Permission]:
    for group, resources, verbs, name in GRANTED:
        for resource in resources:
            for verb in verbs:
                yield Permission(group, resource, verb, name)
