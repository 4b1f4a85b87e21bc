"""`sluice simulate` without its option parsing: input, runs, comparison and notes."""
