"""The Python API: a model in the caller's process, prompts in, results out."""
