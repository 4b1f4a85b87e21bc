"""The CPU backend: the C kernels of `engine/native/` and the compiled decoder."""
