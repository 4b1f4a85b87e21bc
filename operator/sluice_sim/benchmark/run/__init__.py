"""Plans, measures, stores and looks up the pieces of the benchmark."""
