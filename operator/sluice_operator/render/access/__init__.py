"""Builds the children that decide who may reach the pods, and what the pods may do."""
