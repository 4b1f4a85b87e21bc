"""Autoscaling laws behind the signature of decide(): Sluice's own and those of other systems, one law per file."""
