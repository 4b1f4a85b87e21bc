"""Signals from scrapes: freshness, deltas, percentiles, arrivals, cold starts."""
