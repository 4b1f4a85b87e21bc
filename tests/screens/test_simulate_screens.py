"""`sluice simulate` on a terminal."""

import pytest

from tests.screens.golden import compare
from tests.screens.terminal import ROOT, Terminal

SAMPLE = str((ROOT / "crds/samples/cluster.yaml").relative_to(ROOT))


@pytest.mark.parametrize("columns", [80, 120])
def test_simulate(columns: int) -> None:
    options = ["--rate", "4", "--seconds", "120", "--mode", "coarse"]
    with Terminal("simulate", SAMPLE, *options, columns=columns) as terminal:
        assert terminal.finish() == 0
        compare(f"simulate-{columns}", terminal, {r"[\d.]+ s of one core: \d+ ×": "# s of one core: # ×"})
