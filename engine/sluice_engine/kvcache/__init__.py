"""The paged KV cache as block numbers: pool, prefix index, reference counts. No torch."""
