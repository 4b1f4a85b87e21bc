"""A runner without graphs: for models that transformers' modules run, and for attention by torch.

Triton compiles a kernel for each kind of step. Those that the warm-up's small loads may not have are compiled here, so that
nothing compiles after ready.
"""

from typing import Self

import torch

from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.graphs import graph_sizes
from sluice_engine.backend.cuda.modules import compile_module_experts
from sluice_engine.backend.cuda.step_tensors import table_width
from sluice_engine.backend.runner import Runner
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.model.loaded import LoadedModel
from sluice_engine.scheduler import Row
from sluice_kernels import launch


class EagerRunner(Runner):
    """A runner that launches each step's kernels anew."""

    @classmethod
    def compiled(cls, model: LoadedModel, config: CacheConfig, *, fixed_tables: bool) -> Self:
        """The runner for a cache of these sizes, with its kernels. `fixed_tables`: the width of block tables does not depend
        on the step, because the number of splits of the attention kernels follows from it.
        """
        runner = cls.sized(model, config)
        if fixed_tables:
            runner._batch_builder.table_blocks = table_width(-(-model.max_model_length // config.block_size))
        if launch.is_compiled(next(runner.cache.tensors)):
            runner._compile(config.max_num_seqs)
        return runner

    @torch.inference_mode()
    def _compile(self, max_num_seqs: int) -> None:
        """Compute steps of single tokens, as many as graphs would have: for the counts between two powers of two, attention
        has the splits of one of both. They write the null block, which is zeroed again.
        """
        forward = self.model.module.forward
        if isinstance(forward, FusedDecoder):
            forward.compile_experts()
        else:
            compile_module_experts(self.model.module)
        for size in reversed(graph_sizes(max_num_seqs)):
            rows = [Row(str(slot), slot, 0, (0,), True, 0, ()) for slot in range(size)]
            self._output(self._batch_builder.batch(self._batch_builder.gather(rows)).batch, {})
        self.cache.scrub([self.cache.null_block])
