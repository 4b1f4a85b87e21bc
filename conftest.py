"""For every run of pytest in this repository: in CI a test that skips without an expected reason fails.

CI is where the environment has CI=true, which `.ci/run` sets; `--unexpected-skips` chooses by hand.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

# Whole reasons, as regular expressions. Only what no choice of dependencies on a CI machine can change belongs here.
EXPECTED_SKIPS = (
    r"no GPU is visible",
    r"Prometheus is not installed",  # Debian's package; .ci/run installs it where it may
    r"there is no Kubernetes control plane on the PATH",  # .ci/run takes one from the archive of its cluster
    r"no earlier version of the chart: .*",  # a checkout without history has none to upgrade from
    r"helm is not installed",  # no package registry has it; e2e installs the chart with it
    r"no kube-apiserver and etcd: set KUBEBUILDER_ASSETS, as setup-envtest prints it",  # .ci/run has them with its cluster
    r"this processor has no (AVX2|AVX-512|AVX-512 with bf16|AMX and AVX-512 with bf16)",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Whether an unexpected skip fails."""
    default = "fail" if os.environ.get("CI", "").lower() in ("1", "true") else "allow"
    words = "What an unexpected skip does: fail (the default where CI=true) or allow (elsewhere)."
    parser.addoption("--unexpected-skips", choices=("fail", "allow"), default=default, help=words)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Of a test and of its fixtures."""
    return _judged((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Of a file that skips as a whole."""
    return _judged((yield), collector.config)


def _judged(report: Any, config: pytest.Config) -> Any:
    """The report, failed where it is a skip that may not be."""
    if not report.skipped or config.getoption("--unexpected-skips") == "allow":
        return report
    reason = _reason(report)
    if not any(re.fullmatch(expected, reason) for expected in EXPECTED_SKIPS):
        report.outcome = "failed"
        report.__dict__.pop("wasxfail", None)  # an expected failure is a test that does not run either
        report.longrepr = (
            f"Unexpected skip: {reason}\nIn CI every test runs. Install what it needs; if no CI machine can have it, "
            "add the reason to EXPECTED_SKIPS in conftest.py."
        )
    return report


def _reason(report: Any) -> str:
    if hasattr(report, "wasxfail"):
        return f"xfail: {report.wasxfail}"
    found = report.longrepr  # (path, line, "Skipped: reason")
    return str(found[2] if isinstance(found, tuple) else found).removeprefix("Skipped: ")
