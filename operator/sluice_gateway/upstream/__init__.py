"""The gateway's connections to engines: plain HTTP/1.1, one request at a time on each, parsed by httptools.

A general client's session, request and response objects took half of the gateway's time per stream and 10 kB of memory.
"""
