"""SECURITY.md names checks that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SECURITY.md").read_text()


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
