"""Access to the data port by API keys, and the secret files behind it. The package contains no HTTP transport."""
