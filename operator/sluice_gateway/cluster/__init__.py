"""The gateway in a cluster: which models there are and which endpoints serve them, by watches of the API server."""
