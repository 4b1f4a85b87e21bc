"""The engine process: the plan, run and settle loop behind a Unix socket."""
