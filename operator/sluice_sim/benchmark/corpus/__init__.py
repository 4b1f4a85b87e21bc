"""The corpus: many loads on which the autoscaler's rules and constants are chosen, family by family.

`python -m sluice_sim.benchmark.corpus` (make bench-corpus) measures it. The loads are in loads.toml.
"""
