"""llm-d's autoscaling: SLO-aware and token-aware."""
