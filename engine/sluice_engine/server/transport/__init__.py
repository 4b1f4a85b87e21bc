"""HTTP connections: sockets, deadlines, size limits, routing. The package contains no model and no OpenAI format."""
