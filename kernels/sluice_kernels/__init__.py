"""Kernels: each folder holds a reference (the specification) and its Triton implementation."""
