"""`sluice up`: the operator's own loop over processes of this machine, a front door, and something to look at."""
