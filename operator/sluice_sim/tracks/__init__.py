"""The score: every law on the same tracks, beside a schedule that knows the future.

`python -m sluice_sim.tracks` (make bench-control) runs it; what is measured is written in operator/sluice_sim/results.
"""
