"""The operator process: watches, work queue, leader election, watchdog, health endpoint."""
