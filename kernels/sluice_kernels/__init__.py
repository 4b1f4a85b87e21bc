"""Kernels: each folder holds a reference (the specification), its Triton implementation and its configurations."""
