"""Kernels: each a folder with its reference (the specification) and its Triton form."""
