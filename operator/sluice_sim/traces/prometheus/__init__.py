"""Prometheus' answers to range queries over the engines' metrics: series, amounts per step, drawn requests."""
