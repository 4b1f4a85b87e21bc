"""One reconcile pass: observe, decide, apply, report."""
