"""API keys: who calls, with which models, priority and rates. The engine and the gateway read the same key file."""
