"""NVIDIA Dynamo's planner: throughput loop and load loop."""
