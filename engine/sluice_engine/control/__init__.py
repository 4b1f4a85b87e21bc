"""What the engine measures of itself and the limits that follow from it. No torch."""
