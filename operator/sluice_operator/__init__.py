"""The Kubernetes operator: watch, observe, decide, render, apply. It runs without torch."""
