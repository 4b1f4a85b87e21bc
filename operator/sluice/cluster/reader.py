"""Reads of a cluster by API path. Nothing is written: the one POST is an access review, which the server only answers."""

import base64
from collections.abc import Mapping
from typing import Any, Final

from sluice import contract
from sluice_kube.api import collection, dynamic_client, request, request_text
from sluice_kube.errors import ClusterError

Object = dict[str, Any]
_PAGE: Final = 500
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Reader:
    """Every method raises ClusterError, whose message names the request and the server's answer."""

    def __init__(self, client: Any) -> None:
        """`client` is what `sluice_kube.api.connect` returns."""
        self._dynamic = dynamic_client(client)

    async def get(self, path: str) -> Object:
        """Return the object at a path."""
        return await request(self._dynamic, "get", path)

    async def find(self, path: str) -> Object | None:
        """Return the object at a path, or None if it does not exist."""
        try:
            return await self.get(path)
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, path: str, labels: str = "") -> list[Object]:
        """Return all objects of a collection, in pages. `labels` is a selector."""
        found: list[Object] = []
        more: str | None = None
        while True:
            page = await request(self._dynamic, "get", path, label_selector=labels or None, limit=_PAGE, _continue=more)
            found.extend(page.get("items") or ())
            more = (page.get("metadata") or {}).get("continue") or None
            if more is None:
                return found

    async def text(self, path: str, query: Mapping[str, str] | None = None, read_token: str = "") -> str:
        """Return a body that is text: a log, or what a pod answers through the API server's proxy.

        read_token: of an admin port that asks for one. The proxy removes `Authorization`, so it has a header of its own.
        """
        headers = {contract.HEADER_READ_TOKEN: read_token} if read_token else {}
        return await request_text(self._dynamic, path, query or {}, headers)

    async def secret(self, namespace: str, name: str, entry: str) -> str:
        """Return one entry of a Secret; empty if it has none of that name."""
        found = await self.get(f"{collection('v1', 'secrets', namespace)}/{name}")
        return base64.b64decode((found.get("data") or {}).get(entry, "")).decode(errors="replace")

    async def is_allowed(self, attributes: Mapping[str, str]) -> bool:
        """Whether the caller may do what `attributes` (resourceAttributes of the review) describe."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        answer = await request(self._dynamic, "post", _REVIEWS, body=review)
        return bool((answer.get("status") or {}).get("allowed"))


def deployments_path(namespace: str = "", name: str = "") -> str:
    """The path of one LLMDeployment, of those in a namespace, or of all."""
    where = collection(contract.API_VERSION, contract.PLURAL, namespace)
    return f"{where}/{name}" if name else where
