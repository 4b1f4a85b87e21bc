"""The gateway's connections to engines: plain HTTP/1.1, one request at a time on each, parsed by httptools.

A general client's session, request and response objects took a quarter of the gateway's processor time per stream, and 5 kB.
"""
