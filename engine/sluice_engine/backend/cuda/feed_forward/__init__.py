"""The feed-forward layers of the fused decoder: one product pair for all tokens, or a mixture of experts."""
