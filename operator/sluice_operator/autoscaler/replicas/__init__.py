"""The replica dial: demand, capacity, recommendation, stabilization and scale-in order."""
