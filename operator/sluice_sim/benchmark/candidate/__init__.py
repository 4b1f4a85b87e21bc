"""A candidate for the replicas dial, judged on the corpus before it replaces the law in use.

Sluice runs the smallest number of replicas that would have served the last quarter of an hour within the SLO, or that
the present load needs if it goes on growing until a replica ordered now is ready, whichever is more.
"""
