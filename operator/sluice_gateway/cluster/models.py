"""Which models clients may ask for: one per LLMDeployment, and of two with one name the older."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sluice import contract
from sluice.httpapi.models_document import Entry, model_entry
from sluice_gateway.cluster.cannot_start import cannot_start
from sluice_gateway.routing import POLICIES, PolicyName

Object = Mapping[str, Any]

DEPLOYMENTS: Final = (contract.API_VERSION, contract.PLURAL)


@dataclass(frozen=True, slots=True, order=True)
class ServedModel:
    """One LLMDeployment. The order is that of seniority."""

    created: str  # RFC 3339
    resource: str
    namespace: str
    name: str  # that clients ask for
    start_seconds: float | None = None  # of a replica, measured
    needs_key: bool = False
    tls: bool = False  # its engines serve HTTPS
    cannot_start: str = ""  # why it can get no replica
    uid: str = ""
    policy: PolicyName | None = None  # None: the gateway's
    session_header: str | None = None  # None: the gateway's

    @property
    def key(self) -> str:
        """Namespace and name of the LLMDeployment, as `contract.PATH_HELD` has them."""
        return f"{self.namespace}/{self.resource}"

    @property
    def entry(self) -> Entry:
        """What /v1/models lists while no replica can be asked."""
        created = int(datetime.fromisoformat(self.created).timestamp()) if self.created else 0
        return model_entry(self.name, created)


def served_model(document: Object) -> ServedModel:
    """Read one LLMDeployment. The API server has validated it; fields that are absent have their defaults."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    auth, routing, status = spec.get("auth") or {}, spec.get("routing") or {}, document.get("status") or {}
    total = (status.get("coldStartSeconds") or {}).get("total")
    return ServedModel(
        created=str(metadata.get("creationTimestamp", "")),
        resource=str(metadata["name"]),
        namespace=str(metadata["namespace"]),
        name=str((spec.get("model") or {}).get("servedName") or metadata["name"]),
        start_seconds=_seconds(total),
        needs_key=bool(auth.get("apiKeysSecretRef")),
        tls=bool(auth.get("tlsSecretRef")),
        cannot_start=cannot_start(document),
        uid=str(metadata.get("uid", "")),
        policy=next((each for each in POLICIES if each == routing.get("policy")), None),
        session_header=routing.get("sessionHeader"),
    )


def oldest_by_name(models: Iterable[ServedModel]) -> tuple[dict[str, ServedModel], dict[str, str]]:
    """The model of each name, and why the others are not served, by key. In a namespace the operator decides the same."""
    served: dict[str, ServedModel] = {}
    refused: dict[str, str] = {}
    for model in sorted(models):
        older = served.setdefault(model.name, model)
        if older is not model:
            refused[model.key] = f"LLMDeployment {older.key} already serves the name {model.name!r}"
        elif model.tls:
            refused[model.key] = (
                "its engines serve HTTPS, which this gateway does not speak: clients use its own Service"
            )
    return {name: model for name, model in served.items() if not model.tls}, refused


def _seconds(text: Any) -> float | None:
    try:
        return max(0.0, float(text))
    except (TypeError, ValueError):
        return None
