"""The performance model: step time, the requests that one replica serves within the SLO, and shadow queues.

The package holds pure functions over frozen values and uses the standard library only. The engine, the operator and the
simulator run the same code, so their predictions agree.
"""
