"""`LLM` is a guest: the process that imports it, and other models in it, are as they were."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sluice_engine.backend.cpu import native
from sluice_engine.core.engine import EngineLoop
from tests.engine.families import FAMILIES, logits_of, save
from tests.engine.oracle import options


@pytest.mark.parametrize("family", ["llama", "gemma2"])  # run by the compiled decoder, and by torch
def test_an_llm_changes_neither_process_settings_nor_other_models(family: str, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.engine.guest_program", str(save(FAMILIES[family](), tmp_path))]
    done = subprocess.run(program, check=False, timeout=150, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_second_engine_does_not_change_the_first_ones_attention(
    library: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library is None:
        pytest.skip("there is no C compiler")
    folder = save(FAMILIES["gemma2"](), tmp_path)
    texts = [[(3 * i + j * j) % 126 + 2 for j in range(2 + 19 * i)] for i in range(3)]
    monkeypatch.setattr(native, "LIBRARY", library)
    first = EngineLoop(options(folder))
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "absent.so")
    EngineLoop(options(folder))
    used = 0
    attend = native.NativeAttention.attend

    def counted(*given: object) -> torch.Tensor:
        nonlocal used
        used += 1
        return attend(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(native.NativeAttention, "attend", counted)
    for got, other in zip(logits_of(first, texts), logits_of(EngineLoop(options(folder)), texts), strict=True):
        torch.testing.assert_close(got, other, rtol=1e-4, atol=1e-4)
    assert used > 0


def test_the_engine_process_sets_its_threads_and_freezes_start_objects_for_gc(tiny_llama: Path) -> None:
    program = (
        "import gc, sys, torch; from pathlib import Path; "
        "from sluice_engine.core.process import _start; from tests.engine.oracle import options; sent = []; "
        "channel = type('Kept', (), {'send': staticmethod(sent.append)}); torch.set_num_threads(2); "
        "engine = _start(channel, options(Path(sys.argv[1]))); "
        "print(engine is not None, torch.get_num_threads(), gc.get_freeze_count() > 10_000)"
    )
    command = [sys.executable, "-c", program, str(tiny_llama)]
    done = subprocess.run(command, check=False, timeout=150, capture_output=True, text=True)
    assert done.stdout == "True 1 True\n", done.stderr
