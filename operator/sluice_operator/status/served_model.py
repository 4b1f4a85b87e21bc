"""`status.model`: the revision that the pods serve, recorded once, so that later pods fetch the same.

A branch moves on, and the pods of one Service must not answer with different models. Only a hub keeps old revisions; of
a bucket the status shows what the newest start found.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sluice.models.uri import HubModel, S3Model, parse_uri
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.cluster.fleet import ObservedPod
from sluice_operator.render.engine_args import model_path


def served_model(
    spec: LLMDeploymentSpec, pods: Iterable[ObservedPod], previous: Mapping[str, Any]
) -> dict[str, str] | None:
    """Return `status.model`; None before the first pod serves a fetched model. `previous` is the status before."""
    uri, recorded = spec.model.uri, recorded_revision(spec, previous)
    model = parse_uri(uri)
    if not isinstance(model, HubModel | S3Model):
        return None
    if recorded is not None and isinstance(model, HubModel):
        return {"uri": uri, "revision": recorded}
    serving = [pod.view for pod in pods if pod.view.phase == "ready" and pod.model == model_path(uri)]
    found = [(view.since, view.sample.revision) for view in serving if view.sample and view.sample.revision]
    revision = max(found)[1] if found else recorded
    return None if revision is None else {"uri": uri, "revision": revision}


def recorded_model(spec: LLMDeploymentSpec, status: Mapping[str, Any]) -> dict[str, str] | None:
    """Return `status.model` if it is of the spec's model and has a revision; else None."""
    revision = recorded_revision(spec, status)
    return None if revision is None else {"uri": spec.model.uri, "revision": revision}


def recorded_revision(spec: LLMDeploymentSpec, status: Mapping[str, Any]) -> str | None:
    """Return the revision that the status records for the spec's model; None for another URI."""
    recorded = status.get("model") or {}
    return str(recorded.get("revision") or "") or None if recorded.get("uri") == spec.model.uri else None
