"""Explanations: each decision as a sentence with its numbers and the load that would have changed it.

The same text is in `status.decisions`, in the Event, in the log and in the output of `sluice explain`.
"""
