"""The replicas as a gateway knows them: where they are, what they publish, and what was sent to them."""
