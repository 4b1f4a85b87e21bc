"""The processor's attention kernel in C, and how it is compiled when the package is installed."""
