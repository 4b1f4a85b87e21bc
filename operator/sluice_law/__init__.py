"""The physics that both dials share: how long a step takes, what one replica holds, where its limit belongs.

Pure functions over frozen values; standard library only. The engine, the operator and the simulator run this
same code, so a prediction made in one place holds in the others.
"""
