"""The HTTP process: validate, stream, drain; no torch."""
