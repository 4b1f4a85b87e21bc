"""API keys: who calls the data port, with which model, priority and rates. The package contains no HTTP transport."""
