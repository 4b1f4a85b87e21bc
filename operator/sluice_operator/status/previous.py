"""Reads the status of an earlier pass, which another version of the operator may have written."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sluice_operator.api import LLMDeploymentStatus


def readable(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status without the fields and list entries that this version's schema rejects.

    The API server would reject a new status that carried them over.
    """
    if _is_valid(status):
        return dict(status)
    found: dict[str, Any] = {}
    for name, value in status.items():
        if isinstance(value, list):
            found[name] = [entry for entry in value if _is_valid({name: [entry]})]
        elif _is_valid({name: value}):
            found[name] = value
    return {name: value for name, value in found.items() if _is_valid({name: value})}


def _is_valid(status: Mapping[str, Any]) -> bool:
    try:
        LLMDeploymentStatus.model_validate_json(json.dumps(status), strict=True)
    except ValidationError:
        return False
    return True
