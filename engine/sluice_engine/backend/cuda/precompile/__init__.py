"""Kernels of known models, compiled while the GPU image is built: a pod with such a model compiles none before it is ready."""
