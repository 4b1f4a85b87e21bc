"""Laws that move replicas: ours and its peers', behind decide()'s signature. One law per file."""
