"""Access to the engines: reads of /metrics and writes to /limits."""
