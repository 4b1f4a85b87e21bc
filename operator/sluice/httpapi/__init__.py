"""What the HTTP ports of the engine and of the gateway share: errors, connections with their bounds, request bodies."""
