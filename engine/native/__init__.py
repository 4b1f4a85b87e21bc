"""CPU kernels in C for attention and the decoder, and their build step at package installation."""
