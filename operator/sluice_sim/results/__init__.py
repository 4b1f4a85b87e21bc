"""The results of a run: figures, series over time, a table and a picture."""
