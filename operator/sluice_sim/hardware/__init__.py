"""Step-time profiles of hardware, fitted to published measurements."""
