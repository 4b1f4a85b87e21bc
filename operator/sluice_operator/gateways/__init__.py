"""What the gateways hold: found by a watch, read from a feed that each keeps open, added up per LLMDeployment."""
