"""A deployment in virtual time: fleet, replicas, router, requests and the scenario."""
