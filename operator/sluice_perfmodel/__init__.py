"""The performance model: step time, capacity of one replica and concurrency limit.

The package holds pure functions over frozen values and uses the standard library only. The engine, the operator and the
simulator run the same code, so their predictions agree.
"""
