"""The checks of `sluice check`: gather everything that is read, judge it by pure functions, one result per check."""
