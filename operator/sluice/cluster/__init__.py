"""What `sluice status`, `check`, `top` and `report` read from a cluster, and how they show it."""
