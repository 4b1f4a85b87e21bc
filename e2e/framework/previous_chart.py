"""The chart as it was before its last change, from the repository's history."""

import shutil
import subprocess
from pathlib import Path

from e2e.framework.operator_pod import CHART
from e2e.framework.settings import ROOT

_PATH = CHART.relative_to(ROOT)
_CRD = "files/sluice.dev_llmdeployments.yaml"


class NoHistory(Exception):
    """The repository has no earlier version of the chart; the message says why."""


def extract(folder: Path) -> Path:
    """Write the chart's previous version into `folder` and return its path. Raises NoHistory.

    It gets the CRD of this version: a schema never goes back, because the API server would prune newer fields.
    """
    revision = _git("log", "-1", "--format=%H", "--", str(_PATH)).decode().strip()
    before = "HEAD" if _git("status", "--porcelain", "--", str(_PATH)) else f"{revision}~1"
    archive = _git("archive", before, "--", str(_PATH))
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    shutil.copy(CHART / _CRD, folder / _PATH / _CRD)
    return folder / _PATH


def _git(*args: str) -> bytes:
    try:
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, check=True).stdout
    except FileNotFoundError as error:
        raise NoHistory("git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NoHistory(f"git {args[0]}: {error.stderr.decode().strip()}") from error
