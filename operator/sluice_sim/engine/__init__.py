"""One engine in virtual time: step by step (`exact`) or on aggregate counts (`coarse/`)."""
