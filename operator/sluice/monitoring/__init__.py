"""Grafana dashboards, Prometheus rules and their runbook, made from the definitions of metrics by `make generate`."""
