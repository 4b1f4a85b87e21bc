"""The gateway: a router in front of the engines with one URL for all replicas.

It depends on neither operator nor engine: a callable gives it the replicas. `routing` is its policy, without any I/O.
"""
