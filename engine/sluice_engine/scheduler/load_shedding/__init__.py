"""Which requests are rejected, evicted or demoted when not all can meet their TTFT deadline. No torch."""
