"""What the status says about revisions of the pod template: pods that do not start, and upgrades."""
