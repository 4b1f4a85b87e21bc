"""The operator process: settings, watches, work queue, leader election, watchdog, health, metrics."""
