"""The checks as pure functions of an observation. Their order is that of a first installation."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from sluice import __version__, contract
from sluice.cluster.checks.crd_version import compare, served_schema
from sluice.cluster.checks.installation import gateway, images, metrics, operator, pulls
from sluice.cluster.checks.observation import Observation
from sluice.cluster.checks.result import Result, failure, ok, warning
from sluice_kube.errors import ClusterError

LEAST_KUBERNETES: Final = (1, 29)  # kubeVersion of the chart
_SHOWN: Final = 3  # names in a sentence
_ACCELERATOR: Final = re.compile(r"[a-z0-9.-]+/(gpu|mig-.+|gpu\.shared)")


def no_cluster(error: ClusterError) -> Result:
    """No API server answers this caller, so nothing else can be checked."""
    remedy = "Check KUBECONFIG and its current context with `kubectl version`."
    if error.status == HTTPStatus.UNAUTHORIZED:
        remedy = "Log in again, or choose another user in KUBECONFIG: the API server does not know this one."
    return failure("API server", str(error), remedy)


def api_server(seen: Observation) -> Result:
    """It answers, and its version is new enough."""
    if isinstance(seen.server, ClusterError):
        return warning("API server", str(seen.server), "Ask for the right to get the path /version.")
    text = str(seen.server.get("gitVersion", "")).removeprefix("v")
    numbers = re.match(r"(\d+)\.(\d+)", text)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < LEAST_KUBERNETES:
        least = ".".join(map(str, LEAST_KUBERNETES))
        return failure(
            "API server", f"Kubernetes {text or 'of an unknown version'} answers.", f"Upgrade the cluster to {least}."
        )
    return ok("API server", f"Kubernetes {text} answers.")


def permissions(seen: Observation) -> Result:
    """The caller may install the chart. Without that, an installation that exists still works."""
    if isinstance(seen.denied, ClusterError):
        return warning("Permissions", str(seen.denied), "Run `kubectl auth can-i --list` to see what you may do.")
    if not seen.denied:
        return ok("Permissions", "You may install and upgrade the chart.")
    message = f"You may not {_listed(list(dict.fromkeys(str(each) for each in seen.denied)))}."
    remedy = "Install or upgrade as cluster-admin, or ask an administrator for these rights."
    return (warning if seen.installed else failure)("Permissions", message, remedy)


def crd(seen: Observation) -> Result:
    """The CustomResourceDefinition is the one of this version."""
    from sluice_operator.api.crd import custom_resource_definition

    title = "CRD"
    if isinstance(seen.crd, ClusterError):
        return warning(title, str(seen.crd), "Run this with a right to read CustomResourceDefinitions.")
    if seen.crd is None:
        absent = f"{contract.PLURAL}.{contract.GROUP} is not installed."
        if seen.installed:
            return failure(title, absent, "Run `sluice crds | kubectl apply --server-side -f -`.")
        return warning(title, absent, "The chart installs it: run `helm install sluice charts/sluice`.")
    live, ours = served_schema(seen.crd), served_schema(custom_resource_definition())
    if live is None or ours is None:
        return failure(title, f"It does not serve {contract.VERSION}.", _UPGRADE)
    found = compare(live, ours)
    if found.missing:
        return failure(title, f"It is not of version {__version__}: it differs in {_listed(found.missing)}.", _UPGRADE)
    if found.unknown:
        remedy = "Install the version of this command that the cluster has."
        return warning(title, f"It is newer than version {__version__}: it adds {_listed(found.unknown)}.", remedy)
    if seen.lacks_release and (owner := _owner(seen.crd)):
        return warning(title, f"It is of version {__version__}, and {owner}.", _ADOPT)
    return ok(title, f"It is of version {__version__}.")


def _owner(crd: Mapping[str, Any]) -> str:
    """Whose the CRD is, for a release that is to be installed."""
    annotations = (crd.get("metadata") or {}).get("annotations") or {}
    if release := annotations.get("meta.helm.sh/release-name"):
        return f"release {annotations.get('meta.helm.sh/release-namespace')}/{release} of Helm has kept it"
    return "it was not installed by Helm"


_ADOPT: Final = (
    "Install with `--take-ownership`, in Helm 4 also `--force-conflicts`, or with `--set crds.install=false`. A release of "
    "the same name and namespace needs neither."
)
_UPGRADE: Final = "Upgrade the chart, or run `sluice crds | kubectl apply --server-side -f -`."


def accelerators(seen: Observation) -> Result:
    """A node advertises a GPU. CPU replicas need none."""
    title = "GPUs"
    if isinstance(seen.nodes, ClusterError):
        return warning(title, str(seen.nodes), "Run this with a right to list nodes.")
    found: dict[str, int] = {}
    for name, count in _advertised(seen.nodes):
        found[name] = found.get(name, 0) + count
    shown = ", ".join(f"{count} × {name}" for name, count in sorted(found.items()) if count)
    if shown:
        return ok(title, f"The nodes advertise {shown}.")
    return warning(
        title,
        f"None of {len(seen.nodes)} nodes advertises a GPU.",
        "Install the vendor's device plugin, or set spec.engine.accelerator.count to 0 to serve on CPUs.",
    )


def _advertised(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        for name, count in ((node.get("status") or {}).get("allocatable") or {}).items():
            if _ACCELERATOR.fullmatch(name) and str(count).isdecimal():
                yield name, int(count)


def _listed(names: Sequence[str]) -> str:
    """The first names as one phrase, with the number of the others."""
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


CHECKS: Final[tuple[Callable[[Observation], Result], ...]] = (
    api_server,
    permissions,
    crd,
    accelerators,
    operator,
    images,
    pulls,
    gateway,
    metrics,
)


def judge(seen: Observation) -> list[Result]:
    """The results of all checks, in order."""
    return [check(seen) for check in CHECKS]
