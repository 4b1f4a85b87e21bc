"""The engine's arguments as the kubelet hands them on: it replaces `$(NAME)` by a variable's value."""

import re
from typing import Any

import pytest

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.render.engine_args import as_given


def container_of(uri: str) -> dict[str, Any]:
    kind = {"apiVersion": contract.API_VERSION, "kind": contract.KIND, "metadata": {"name": "chat"}}
    resource = parse(kind | {"spec": {"model": {"uri": uri}}})
    *_, deployment = render.children(resource, defaults=render.PodDefaults("engine"), replicas=1, token="t")
    container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def expanded(argument: str) -> str:
    """What the kubelet makes of an argument: `$(NAME)` is the variable's value, here its name in brackets, `$$` is `$`."""
    return re.sub(r"\$(\$|\(([^)]*)\))", lambda m: "$" if m[1] == "$" else f"[{m[2]}]", argument)


@pytest.mark.parametrize("path", ["a$b", "$(HOME)", "$$(HOME)", "$$", "a$", "$(", "plain"])
def test_a_dollar_in_a_models_path_is_a_dollar_in_the_container(path: str) -> None:
    container = container_of(f"file:///m/{path}")
    assert expanded(container["args"][1]) == as_given(container["args"][1]) == f"/m/{path}"
