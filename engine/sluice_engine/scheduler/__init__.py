"""The scheduler: plan, settle; no tensor in it."""
