"""Whether a waiting request may run: its predicted KV peak must fit. No torch."""
