"""API keys at the gateway: the key file that it follows, and what it tells engines of a verified request."""
