"""The operations of the fused decoder: their table, the linear layers, and the table of a rank of several."""

from sluice_engine.backend.cuda.ops.table import KERNELS, Operation, Ops, unchecked

__all__ = ["KERNELS", "Operation", "Ops", "unchecked"]
