"""Hindsight: the clairvoyant schedule, capacity bounds, and the search for the best setting of a law's knob."""
