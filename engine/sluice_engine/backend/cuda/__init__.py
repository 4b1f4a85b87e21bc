"""The CUDA backend: the Triton kernels of `sluice_kernels`, which are plain torch on any other device."""
