"""The record of revisions as an annotation of the Deployment: written in one step with the template that it describes.

An annotation needs no request of its own, and goes with the Deployment. A Deployment without one was written by an
operator before there were records; its template is then adopted if its pods serve this spec.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.render.deployment import fingerprint
from sluice_operator.revisions.values import (
    Asked,
    Choice,
    Record,
    Revision,
    image_of,
    secret_of,
    template_fingerprint,
    with_secret,
)

MAX_BYTES: Final = 128 * 1024  # an API server takes 256 KiB of annotations per object
_FORMAT: Final[TypeAdapter[Record]] = TypeAdapter(Record)


def read_record(deployment: Object) -> Record | None:
    """Return the Deployment's record; None if it has none that can be read, or another writer has changed a template in it."""
    text = (deployment["metadata"].get("annotations") or {}).get(contract.ANNOTATION_REVISIONS)
    if text is None:
        return None
    try:
        record = _FORMAT.validate_json(text)
    except ValidationError:
        return None
    return record if all(_is_unchanged(each) for each in (record.applied, record.good) if each is not None) else None


def _is_unchanged(revision: Revision) -> bool:
    """True if the template is the one that the operator has recorded: it would write any other one to the Deployment."""
    try:
        return template_fingerprint(revision.pod) == revision.template
    except (AttributeError, TypeError):  # it is no pod template at all
        return False


def record_of(deployment: Object | None, asked: Asked, ready: Mapping[str, Any], generation: int) -> Record | None:
    """Return the record to start from; None for a Deployment that is not written yet.

    ready: the Ready condition of the last status. generation: of the resource.
    """
    if deployment is None:
        return None
    record = read_record(deployment)
    if record is None:
        return _adopted(deployment, asked, ready, generation)
    return replace(record, applied=replace(record.applied, pod=_as_written(record.applied.pod, deployment)))


def _as_written(pod: Object, deployment: Object) -> Object:
    """The recorded template with the Secret that the operator has written: an earlier one changed it beside the record."""
    renamed = with_secret(pod, secret_of((deployment.get("spec") or {}).get("template") or {}) or secret_of(pod))
    written = (deployment["metadata"].get("annotations") or {}).get(contract.ANNOTATION_TEMPLATE)
    return renamed if written == fingerprint(renamed) else pod


def _adopted(deployment: Object, asked: Asked, ready: Mapping[str, Any], generation: int) -> Record:
    """The record of a Deployment without one. Its pods are of this spec if the resource was Ready in this generation."""
    serves = ready.get("status") == "True" and ready.get("observedGeneration") == generation
    rendered = asked.render(asked.image)
    written = str((deployment["metadata"].get("annotations") or {}).get(contract.ANNOTATION_TEMPLATE, ""))
    if written == fingerprint(rendered):
        return Record(asked.image, Revision(asked.spec, template_fingerprint(rendered), rendered, ready=serves))
    live = deployment.get("spec", {}).get("template") or {}
    metadata = {name: value for name, value in (live.get("metadata") or {}).items() if name != "creationTimestamp"}
    pod = {**live, "metadata": metadata}
    image = asked.image if asked.has_own_image else image_of(pod) or asked.image
    return Record(image, Revision(asked.spec if serves else "", template_fingerprint(pod), pod, ready=serves))


def with_revision(deployment: Object, choice: Choice) -> Object:
    """Return the rendered Deployment with the chosen pod template and the record.

    A record that is too large loses the revision to go back to, then all: a pod template may have 128 KiB of annotations.
    """
    annotations = {**deployment["metadata"]["annotations"], contract.ANNOTATION_TEMPLATE: fingerprint(choice.pod)}
    if text := _text(choice.record):
        annotations[contract.ANNOTATION_REVISIONS] = text
    metadata = {**deployment["metadata"], "annotations": annotations}
    return {**deployment, "metadata": metadata, "spec": {**deployment["spec"], "template": choice.pod}}


def _text(record: Record) -> str:
    for good in (record.good, None):
        text = _FORMAT.dump_json(replace(record, good=good), exclude_defaults=True)
        if len(text) <= MAX_BYTES:
            return text.decode()
    return ""
