"""The command line, and the wire contract between the operator, the engine, the gateway and the simulator."""

__version__ = "0.1.0"
