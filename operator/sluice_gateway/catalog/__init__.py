"""Which models a gateway has, and what /v1/models lists."""
