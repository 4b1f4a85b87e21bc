"""Reports of the benchmark as tables, JSON and plots."""
