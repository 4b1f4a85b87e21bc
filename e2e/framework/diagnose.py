"""Prints the diagnosis of a failed test: conditions, pods, events, logs."""

from e2e.framework.cluster import Cluster, CommandFailed, Object, TimedOut, name_of, run


def print_everything(cluster: Cluster, operator_namespace: str) -> None:
    """Print all parts; for a part that cannot be read, print the error and continue."""
    here, there = ["-n", cluster.namespace], ["-n", operator_namespace]
    _show("resources", *here, "get", "llmd,deploy,pods,jobs,pvc", "-o", "wide")
    _show(
        "status", *here, "get", "llmd", "-o", "jsonpath={range .items[*]}{.metadata.name}{': '}{.status}{'\\n\\n'}{end}"
    )
    _show(
        "events",
        *here,
        "get",
        "events",
        "--sort-by=.lastTimestamp",
        "-o",
        "custom-columns=T:.lastTimestamp,R:.reason,O:.involvedObject.name,M:.message",
    )
    _show("operator", *there, "get", "pods", "-o", "wide")
    for namespace, lines in ((operator_namespace, "--tail=80"), (cluster.namespace, "--tail=40")):
        for pod in _pods(cluster, namespace):
            log = ["-n", namespace, "logs", name_of(pod), lines]
            _show(f"log of {name_of(pod)}", *log)
            if any(s.get("restartCount") for s in pod.get("status", {}).get("containerStatuses", [])):
                _show(f"log of {name_of(pod)} before its restart", *log, "--previous")


def _pods(cluster: Cluster, namespace: str) -> list[Object]:
    try:
        pods: list[Object] = (cluster.get(f"/api/v1/namespaces/{namespace}/pods") or {}).get("items", [])
    except TimedOut as silent:
        print(f"--- pods of {namespace}\n{silent}", flush=True)
        return []
    return pods


def _show(title: str, *args: str) -> None:
    try:
        text = run("kubectl", *args)
    except (CommandFailed, TimedOut) as failure:
        text = str(failure)
    print(f"--- {title}\n{text[-8000:]}", flush=True)
