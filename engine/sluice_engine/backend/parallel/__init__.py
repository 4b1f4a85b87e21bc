"""Tensor parallelism: which part of each weight a rank holds, and the collective operations that join the results."""
