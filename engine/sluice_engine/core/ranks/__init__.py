"""The processes that share a model: one per accelerator. The engine process is rank 0 and gives its plans to the others.

All ranks load, warm up and compute the same plans in the same order; each samples the same tokens from the same logits.
"""
