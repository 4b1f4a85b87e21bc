"""What a person would look at first when the story breaks: conditions, pods, events, logs."""

from e2e.cluster import Cluster, CommandFailed, name_of, run

LINES = "--tail=40"


def print_everything(cluster: Cluster, operator_namespace: str) -> None:
    """Print it; a part that cannot be read says why and the rest goes on."""
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
    for pod in (cluster.get(f"/api/v1/namespaces/{operator_namespace}/pods") or {}).get("items", []):
        _show(f"log of {name_of(pod)}", *there, "logs", name_of(pod), "--tail=80")
        if any(s.get("restartCount") for s in pod.get("status", {}).get("containerStatuses", [])):
            _show(f"log of {name_of(pod)} before its restart", *there, "logs", "--previous", name_of(pod), "--tail=80")
    for pod in (cluster.get(f"/api/v1/namespaces/{cluster.namespace}/pods") or {}).get("items", []):
        _show(f"log of {name_of(pod)}", *here, "logs", name_of(pod), LINES)
        if any(s.get("restartCount") for s in pod.get("status", {}).get("containerStatuses", [])):
            _show(f"log of {name_of(pod)} before its restart", *here, "logs", "--previous", name_of(pod), LINES)


def _show(title: str, *args: str) -> None:
    try:
        text = run("kubectl", *args)
    except CommandFailed as failure:
        text = str(failure)
    print(f"--- {title}\n{text[-8000:]}", flush=True)
