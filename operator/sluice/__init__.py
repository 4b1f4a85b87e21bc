"""The command line, and the wire contract that the operator, the engine, the gateway and the simulator keep."""

__version__ = "0.1.0"
