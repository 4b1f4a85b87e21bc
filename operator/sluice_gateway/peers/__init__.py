"""What the gateways of one release tell each other: what was used of the rates, and which prompts were sent where."""
