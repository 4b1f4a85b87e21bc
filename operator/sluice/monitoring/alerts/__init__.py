"""Recording rules and alerts, each alert with its section of the runbook."""
