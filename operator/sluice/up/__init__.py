"""`sluice up`: the operator's reconcile loop over local processes, a gateway, and a status display."""
