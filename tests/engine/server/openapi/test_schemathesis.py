"""schemathesis sends what the served document allows and what it forbids to a real server, and judges the answers."""

from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    ignored_auth,
    missing_required_header,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from sluice import contract
from sluice_engine.server.openapi.document import document
from tests.engine.serving import Served

# Left out: positive_data_acceptance, because rules between fields (top_logprobs needs logprobs, two grammars exclude each
# other) and bounds of the model (context, vocabulary) are no JSON schema; test_document.py has its own for each field.
# use_after_free and ensure_resource_availability need resources that are created and deleted, and there are none.
CHECKS: Final = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    response_headers_conformance, negative_data_rejection, missing_required_header, unsupported_method, ignored_auth,
    allow_header_conformance,
]  # fmt: skip
FEW_TOKENS: Final = {"max_tokens": 2, "max_completion_tokens": 2, "max_output_tokens": 2}
PATIENCE: Final = 120.0  # seconds for an answer; a text without a limit goes on to the end of the context
LEAST_TTFT_MS: Final = 60_000  # a deadline that cannot be met is a 503, rightly
OPERATIONS: Final = [(path, method) for path, methods in document()["paths"].items() for method in methods]
CALLS: Final = [
    pytest.param(path, method, mode, id=f"{path}-{method}-{name}")
    for mode, name in ((GenerationMode.POSITIVE, "allowed"), (GenerationMode.NEGATIVE, "forbidden"))
    for path, method in OPERATIONS
    if mode is GenerationMode.POSITIVE or method != "get"
]
BOUNDED = settings(
    max_examples=12, suppress_health_check=[*HealthCheck], derandomize=True, deadline=None, database=None
)


@pytest.fixture(scope="module")
def api(served_without_keys: Served) -> Any:
    given = served_without_keys.request("GET", "/openapi.json").json()
    schemas = given["components"]["schemas"]
    for schema in schemas.values():  # what is not described must not be in an answer
        schema.setdefault("additionalProperties", False)
    loaded = schemathesis.openapi.from_dict(given)
    loaded.config.update(base_url=f"http://127.0.0.1:{served_without_keys.port}")
    rejection = loaded.config.checks.negative_data_rejection
    rejection.expected_statuses = [
        *rejection.expected_statuses,
        "413",
    ]  # a list may be too long for the bound of bodies
    return loaded


@pytest.fixture(scope="module")
def keyed(served_with_keys: Served) -> Any:
    """The same operations at a server with keys, each of which then needs one."""
    given = served_with_keys.request("GET", "/openapi.json").json()
    for part in (given, *(operation for path in given["paths"].values() for operation in path.values())):
        part["security"] = [each for each in part.get("security", given["security"]) if each]
    loaded = schemathesis.openapi.from_dict(given)
    loaded.config.update(base_url=f"http://127.0.0.1:{served_with_keys.port}")
    return loaded


@pytest.mark.parametrize("path", [contract.PATH_DETOKENIZE, contract.PATH_COUNT_TOKENS])
def test_a_described_key_is_needed_and_suffices(keyed: Any, served_with_keys: Served, path: str) -> None:
    answered = []

    @BOUNDED
    @given(keyed[path]["POST"].as_strategy(generation_mode=GenerationMode.POSITIVE))
    def judged(case: Any) -> None:
        headers = {"Authorization": f"Bearer {served_with_keys.key}"}
        if isinstance(case.body, dict):
            case.body["model"] = "tiny"
        answered.append(case.call_and_validate(checks=[ignored_auth], headers=headers).status_code)

    judged()
    assert 200 in answered and not {401, 403} & set(answered)


def test_the_check_of_keys_can_fail(keyed: Any, served_without_keys: Served) -> None:
    """At a server that asks for no key, an operation that is described with one is found."""
    address = f"http://127.0.0.1:{served_without_keys.port}"

    @BOUNDED
    @given(keyed[contract.PATH_DETOKENIZE]["POST"].as_strategy(generation_mode=GenerationMode.POSITIVE))
    def judged(case: Any) -> None:
        case.call_and_validate(checks=[ignored_auth], headers={"Authorization": "Bearer any"}, base_url=address)

    with pytest.raises(FailureGroup):
        judged()


def test_a_key_of_a_header_is_described_where_it_is_read() -> None:
    found = document()
    offered = {
        path
        for path, methods in found["paths"].items()
        for operation in methods.values()
        if {"x-api-key": []} in operation.get("security", found["security"])
    }
    assert offered == {*contract.PATHS_ANTHROPIC, contract.PATH_MODELS, f"{contract.PATH_MODELS}/{{model}}"}


@pytest.mark.parametrize(("path", "method"), [each for each in OPERATIONS if each[1] == "get"])
def test_a_get_takes_no_body_that_could_be_malformed(api: Any, path: str, method: str) -> None:
    assert "requestBody" not in api[path][method.upper()].definition.raw


@pytest.mark.parametrize(("path", "method", "mode"), CALLS)
def test_answers_conform(api: Any, path: str, method: str, mode: GenerationMode) -> None:
    operation = api[path][method.upper()]

    @BOUNDED
    @given(operation.as_strategy(generation_mode=mode))
    def judged(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and isinstance(case.body, dict):
            case.body |= {name: most for name, most in FEW_TOKENS.items() if case.body.get(name) is not None}
            if (slo := case.body.get("slo")) and slo.get("ttft_ms") is not None:
                slo["ttft_ms"] = max(slo["ttft_ms"], LEAST_TTFT_MS)
            case.body |= {"model": "tiny"} if "model" in case.body else {}
        case.call_and_validate(checks=CHECKS, timeout=PATIENCE)

    judged()
