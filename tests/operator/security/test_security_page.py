"""SECURITY.md names checks that exist, and the pages name the Secrets that the chart's roles let be read."""

import re
from pathlib import Path

import pytest

from tests.operator.security.chart_objects import NAMESPACE, RELEASE, VARIANTS, stored
from tests.operator.security.permissions import permissions_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SECURITY.md").read_text()
READING = {"get", "list", "watch"}


def test_each_test_and_command_of_the_threat_model_exists() -> None:
    tests, commands = set(re.findall(r"`(tests/[^`]+)`", PAGE)), set(re.findall(r"`make ([a-z-]+)`", PAGE))
    assert len(tests) >= 8 and len(commands) >= 2
    assert [each for each in sorted(tests) if not (ROOT / each).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    assert [each for each in sorted(commands) if f"\n{each}:" not in makefile] == []


def test_each_field_and_value_of_the_page_exists() -> None:
    spec = (ROOT / "crds/sluice.dev_llmdeployments.yaml").read_text()
    assert all(f"{name}:" in spec for name in re.findall(r"`spec\.\w+\.(\w+)`", PAGE))
    assert "\nwatchNamespace:" in (ROOT / "charts/sluice/values.yaml").read_text() and "`watchNamespace`" in PAGE


def readable_secrets(account: str, variant: str) -> set[tuple[str, str]]:
    """Namespace and name of the Secrets that a ServiceAccount may read; an empty name means all of the namespace."""
    return {
        (each.namespace, name.removeprefix(f"{RELEASE}-"))
        for each in permissions_of(account, NAMESPACE, stored(variant))
        if each.resource == "secrets" and each.verb in READING
        for name in each.names or ("",)
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_pages_name_exactly_the_secrets_that_the_operator_may_read(variant: str) -> None:
    readable = readable_secrets(f"{RELEASE}-sluice", variant)
    assert readable and {namespace for namespace, _ in readable} == {NAMESPACE}
    assert not readable_secrets(f"{RELEASE}-sluice-gateway", variant)
    for page in ("README.md", "SECURITY.md"):
        text = " ".join((ROOT / page).read_text().split())
        sentences = re.findall(r"[Tt]he operator reads [^.|]*", text)
        assert sentences, f"{page} does not say which Secrets the operator reads"
        for sentence in sentences:
            assert set(re.findall(r"`(sluice-\w+)`", sentence)) == {name for _, name in readable}, (page, sentence)


def test_the_pages_say_of_an_upgrade_that_a_policy_moves_models() -> None:
    supported = PAGE.partition("## Supported versions")[2].partition("\n## ")[0]
    assert "`spec.rollout.upgradePolicy`" in supported and "every model" not in supported
