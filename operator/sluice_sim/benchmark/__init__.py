"""The autoscaling benchmark: it scores every law on the same tracks against a clairvoyant schedule.

`python -m sluice_sim.benchmark` (make bench-control) runs it. The results are in tests/bench/results/autoscaling.
"""
