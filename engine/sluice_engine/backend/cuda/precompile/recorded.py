"""The launches of an engine's warm-up, recorded without a device."""

from dataclasses import replace

from sluice_engine.backend.cuda.precompile.sizes import ModelSizes
from sluice_engine.backend.cuda.precompile.valueless import ValuelessRunner, valueless_model
from sluice_engine.config import EngineOptions
from sluice_engine.core.warmup import warm_up
from sluice_engine.model.layer_groups import group_layers
from sluice_engine.scheduler import SchedulerConfig
from sluice_kernels import launch

_LAYERS = 2  # more repeat the launches of these


def warm_up_launches(sizes: ModelSizes, architecture: int, options: EngineOptions) -> list[launch.Launch]:
    """All launches before such a model is ready, with the options' numbers of sequences and tokens."""
    sizes = replace(sizes, layers=min(sizes.layers, _LAYERS))
    groups, length = group_layers((None,) * sizes.layers), options.max_model_length or sizes.positions
    config = SchedulerConfig(
        num_blocks=-(-length // options.block_size) + 1,
        block_size=options.block_size,
        max_num_seqs=options.max_num_seqs,
        max_model_length=length,
        windows=groups.windows,
    )
    model, decoder = valueless_model(sizes, groups, length)
    with launch.recording(architecture) as launches:
        warm_up(ValuelessRunner(model, decoder, config), config, options.limits.max_batched_tokens, sizes.vocab)
    return launches
