"""The operator: watch, observe, decide, render, apply. Runs without torch."""
