"""The kernels that are compiled for an image are all that a decode step of the whole model launches, at any size."""

import pytest

from sluice_engine.backend.cuda.graphs import graph_sizes
from sluice_engine.backend.cuda.precompile.__main__ import main
from sluice_engine.backend.cuda.precompile.recorded import warm_up_launches
from sluice_engine.backend.cuda.precompile.sizes import KNOWN, ModelSizes
from sluice_engine.config import EngineOptions
from sluice_kernels import launch
from tests.engine.backend.cuda.test_no_synchronisation import SLOTS, Model

OPTIONS = EngineOptions(model="", served_name="", max_num_seqs=SLOTS)


@pytest.mark.parametrize("architecture", [80, 90, 100])
def test_a_step_of_more_layers_launches_no_other_kernel(architecture: int) -> None:
    found = {one.key for one in warm_up_launches(ModelSizes(32, 4096, 14336, 32), architecture, OPTIONS)}
    step = Model(4, 4096, 14336, 32).step()  # more than the two layers that are recorded
    with launch.recording(architecture) as launches:
        for size in graph_sizes(SLOTS):
            step(size)
            step.sample(size, adjusted=size % 16 == 0)
    assert {one.key for one in launches} <= found


@pytest.mark.parametrize("name", KNOWN)
def test_known_models_prefill_and_decode(name: str) -> None:
    kernels = {one.kernel.__name__ for one in warm_up_launches(KNOWN[name], 90, OPTIONS)}
    assert kernels >= {"_rms_norm", "_kv_write", "_attend_split", "_paged_prefill", "_silu_mul", "_choose", "_adjust"}


def test_the_command_refuses_a_model_that_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--model", "none"])
    assert ended.value.code == 2
    assert "invalid choice: 'none' (choose from" in capsys.readouterr().err
