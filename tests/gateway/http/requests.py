"""Requests in bytes that an engine and a gateway before it must answer alike, by what is wrong or odd about each."""

import json
from collections.abc import Callable
from typing import Final

from sluice import contract
from sluice_gateway.conversation import LARGE_BYTES

CHAT: Final = "/v1/chat/completions"
LIMIT: Final = 8 * 1024 * 1024
GOOD: Final = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "temperature": 0}
BODY: Final = json.dumps(GOOD).encode()
JSON: Final = "Content-Type: application/json"
HIDDEN: Final = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"  # a request in another one's body
PADDING: Final = b" " * LARGE_BYTES


def head(*lines: str, method: str = "POST", path: str = CHAT, host: str = "Host: localhost") -> bytes:
    """A request's head; an empty `host` is left out."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", *([host] if host else []), *lines, "", ""]).encode("latin-1")


def posted(body: bytes, *lines: str, path: str = CHAT) -> bytes:
    """A JSON request with its length."""
    return head(JSON, f"Content-Length: {len(body)}", *lines, path=path) + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n", lines: tuple[str, ...] = ()) -> bytes:
    """A JSON request in chunks."""
    return (
        head(JSON, "Transfer-Encoding: chunked", *lines)
        + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks)
        + end
    )


def large(text: bytes) -> bytes:
    """A JSON text as a body of 512 KiB and more, which a gateway reads in another way than smaller ones."""
    return posted(text + PADDING)


def framings() -> dict[str, bytes]:
    """Ways to say where a body ends."""
    length = f"Content-Length: {len(BODY)}"
    return {
        "length": head(JSON, length) + BODY,
        "chunked": chunked(BODY),
        "chunked byte by byte": chunked(*(bytes([byte]) for byte in BODY)),
        "chunked with extensions": head(JSON, "Transfer-Encoding: chunked")
        + b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        "chunked with trailers": chunked(BODY, end=b"0\r\nX-Trailer: 1\r\n\r\n"),
        "chunked with a forbidden trailer": chunked(BODY, end=b"0\r\nContent-Length: 5\r\n\r\n"),
        "chunked in capitals": head(JSON, "Transfer-Encoding: CHUNKED") + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
        "length and chunked": head(JSON, "Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + HIDDEN,
        "chunked and length": head(JSON, "Transfer-Encoding: chunked", "Content-Length: 4") + b"0\r\n\r\n" + HIDDEN,
        "chunked and length by tab": head(JSON, "Transfer-Encoding:\tchunked", "Content-Length: 4")
        + b"0\r\n\r\n"
        + HIDDEN,
        "space before the colon": head(JSON, "Transfer-Encoding : chunked", length) + BODY + HIDDEN,
        "length with a space before the colon": head(JSON, f"Content-Length : {len(BODY)}") + BODY + HIDDEN,
        "two codings": head(JSON, "Transfer-Encoding: chunked", "Transfer-Encoding: identity") + b"0\r\n\r\n" + HIDDEN,
        "gzip before chunked": head(JSON, "Transfer-Encoding: gzip, chunked") + b"2\r\n{}\r\n0\r\n\r\n" + HIDDEN,
        "chunked twice": head(JSON, "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n" + HIDDEN,
        "identity": head(JSON, "Transfer-Encoding: identity", length) + BODY,
        "an unknown coding": head(JSON, "Transfer-Encoding: xchunked") + b"0\r\n\r\n" + HIDDEN,
        "a coding with a control character": head(JSON, "Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n" + HIDDEN,
        "two equal lengths": head(JSON, length, length) + BODY + HIDDEN,
        "two lengths": head(JSON, length, "Content-Length: 0") + BODY + HIDDEN,
        "two lengths in one line": head(JSON, f"Content-Length: {len(BODY)}, {len(BODY)}") + BODY + HIDDEN,
        "length with a sign": head(JSON, f"Content-Length: +{len(BODY)}") + BODY + HIDDEN,
        "length in hex": head(JSON, f"Content-Length: {len(BODY):#x}") + BODY + HIDDEN,
        "length with an underscore": head(JSON, "Content-Length: 1_0") + BODY + HIDDEN,
        "length of other digits": head(JSON, "Content-Length: \xb2") + BODY + HIDDEN,
        "an empty length": head(JSON, "Content-Length:") + BODY + HIDDEN,
        "a negative length": head(JSON, "Content-Length: -1") + BODY + HIDDEN,
        "an endless length": head(JSON, "Content-Length: " + "9" * 40) + BODY,
        "neither": head(JSON) + HIDDEN,
        "a chunk of negative size": head(JSON, "Transfer-Encoding: chunked") + b"-1\r\n\r\n0\r\n\r\n" + HIDDEN,
        "a chunk size with a prefix": head(JSON, "Transfer-Encoding: chunked") + b"0x2\r\n{}\r\n0\r\n\r\n" + HIDDEN,
        "a chunk size with spaces": head(JSON, "Transfer-Encoding: chunked") + b"2 \r\n{}\r\n0\r\n\r\n" + HIDDEN,
        "a chunk longer than its size": head(JSON, "Transfer-Encoding: chunked") + b"2\r\n{}x\r\n0\r\n\r\n" + HIDDEN,
        "a chunk ended by a bare LF": head(JSON, "Transfer-Encoding: chunked") + b"2\n{}\r\n0\r\n\r\n" + HIDDEN,
        "a chunk extension with a bare LF": head(JSON, "Transfer-Encoding: chunked")
        + b"2;a\nb\r\n{}\r\n0\r\n\r\n"
        + HIDDEN,
        "a huge chunk size": head(JSON, "Transfer-Encoding: chunked") + b"f" * 17 + b"\r\n{}\r\n",
        "a long chunk extension": head(JSON, "Transfer-Encoding: chunked")
        + b"2;"
        + b"a" * 20_000
        + b"\r\n{}\r\n0\r\n\r\n",
        "expect another": head(JSON, length, "Expect: 200-ok") + BODY,
        "a GET with a body": head(JSON, length, method="GET", path="/v1/models") + BODY,
        "a GET with a chunked body": head("Transfer-Encoding: chunked", method="GET", path="/v1/models") + b"0\r\n\r\n",
    }


def heads() -> dict[str, bytes]:
    """Request lines and headers."""
    return {
        "a folded header": posted(BODY, "X-Folded: 1\r\n 2"),
        "a folded host": head(JSON, "Content-Length: 2", host="Host: local\r\n host") + b"{}",
        "bare LF after the request line": b"POST /v1/chat/completions HTTP/1.1\nHost: localhost\r\n\r\n" + HIDDEN,
        "bare LF everywhere": posted(BODY).replace(b"\r\n", b"\n", 4),
        "a bare CR": posted(BODY, "X-A: 1\rX-B: 2"),
        "a NUL": posted(BODY, "X-A: 1\x002"),
        "a header without a colon": posted(BODY, "nothing"),
        "a header without a name": posted(BODY, ": nothing"),
        "a header with a space in its name": posted(BODY, "X A: 1"),
        "a header of 7 kB": posted(BODY, "X-A: " + "a" * 7000),
        "a header of 9 kB": posted(BODY, "X-A: " + "a" * 9000),
        "a header of 9 kB in its name": posted(BODY, "a" * 9000 + ": 1"),
        "90 headers": posted(BODY, *(f"X-{number}: 1" for number in range(90))),
        "200 headers": posted(BODY, *(f"X-{number}: 1" for number in range(200))),
        "a path of 10 kB": head(method="GET", path="/" + "a" * 10_000),
        "a query of 10 kB": head(method="GET", path="/v1/models?" + "a" * 10_000),
        "no host": head(JSON, "Content-Length: 2", host="") + b"{}",
        "an empty host": head(JSON, "Content-Length: 2", host="Host:") + b"{}",
        "two hosts": posted(BODY, "Host: localhost"),
        "a host with a path": head(JSON, "Content-Length: 2", host="Host: a/b?c") + b"{}",
        "a host with a user": head(JSON, "Content-Length: 2", host="Host: me@localhost") + b"{}",
        "another machine's host": head(JSON, "Content-Length: 2", host="Host: evil.example") + b"{}",
        "HTTP/1.0": posted(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
        "HTTP/1.0 kept alive": posted(BODY, "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
        "HTTP/1.0 in chunks": chunked(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
        "HTTP/0.9": b"GET /v1/models\r\n\r\n",
        "HTTP/2.0": posted(BODY).replace(b"HTTP/1.1", b"HTTP/2.0"),
        "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "an upgrade to HTTP/2": posted(
            BODY, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"
        ),
        "an upgrade to a socket": posted(BODY, "Connection: Upgrade", "Upgrade: websocket"),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
        "nonsense": b"nonsense\r\n\r\n",
        "empty lines first": b"\r\n\r\n" + posted(BODY),
        "an absolute URI": posted(BODY, path="http://localhost/v1/chat/completions"),
        "an absolute URI of another host": posted(BODY, path="http://evil.example/v1/chat/completions"),
        "two requests at once": posted(BODY) + posted(BODY, "Connection: close"),
        "close": posted(BODY, "Connection: close"),
        "a content type in capitals": head("CONTENT-TYPE: APPLICATION/JSON", f"Content-Length: {len(BODY)}") + BODY,
        "a content type with a charset": head(f"{JSON}; charset=utf-8", f"Content-Length: {len(BODY)}") + BODY,
        "a content type of another charset": head(f"{JSON}; charset=utf-16", f"Content-Length: {len(BODY)}") + BODY,
        "two content types": head(JSON, "Content-Type: text/plain", f"Content-Length: {len(BODY)}") + BODY,
        "a form": head("Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(BODY)}") + BODY,
        "no content type": head(f"Content-Length: {len(BODY)}") + BODY,
        "gzip": posted(b"\x1f\x8b broken", "Content-Encoding: gzip"),
        "identity encoding": posted(BODY, "Content-Encoding: identity"),
        "an empty encoding": posted(BODY, "Content-Encoding:"),
    }


def paths() -> dict[str, bytes]:
    """Methods and paths, in any spelling."""
    found = {
        f"{method} on a posted path": head("Content-Length: 0", method=method)
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "post")
    }
    found |= {
        f"{method} on the models": head("Content-Length: 0", method=method, path="/v1/models")
        for method in ("POST", "DELETE", "BREW")
    }
    for path in (
        "/v1/models",
        "/v1/models/tiny",
        "/v1/models/other",
        "/health",
        "/openapi.json",
        "/v1/chat/completions",
    ):
        found[f"HEAD {path}"] = head(method="HEAD", path=path)
    found["CONNECT"] = head(method="CONNECT", path="localhost:443")
    found["OPTIONS *"] = head("Content-Length: 0", method="OPTIONS", path="*")
    for path in (
        "/", "//v1/models", "/v1//models", "/v1/models/", "/v1/models//", "/v1/models/tiny", "/v1/models/tiny/", "/v1/models/other", "/v1/models/a/b", "/v1/models/%74iny", "/v1/models/%2e%2e",
        "/v1/models/../../metrics", "/v1/models/..%2f..%2fmetrics", "/v1/models/tiny?a=b", "/v1/models?a=../..", "/v1/./models", "/v1/../metrics", "/./v1/models", "/v1/%6dodels", "/%2e%2e/v1/models",
        "/v1/models;a=1", "/v1/models%00", "/v1/models%20", "/v1/models#a", "/V1/MODELS", "/v1\\models", "/metrics", "/livez", "/load", "/state", "/limits", "/kv_events", "/health", "/version", "/openapi.json",
    ):  # fmt: skip
        found[f"GET {path}"] = head(method="GET", path=path)
    for path in (
        f"{CHAT}/",
        f"/{CHAT}",
        f"{CHAT}%20",
        f"{CHAT}?x=%2e%2e",
        f"{CHAT};a",
        "/v1/chat%2fcompletions",
        "/v1/chat/./completions",
        "/drain",
        "/limits",
    ):
        found[f"POST {path}"] = posted(BODY, path=path)
    return found


def bodies() -> dict[str, bytes]:
    """JSON of 512 KiB and more, and bodies at and over the limit."""
    text = b'{"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "%b"}]%b}'
    deep = b"[" * 300 + b"]" * 300
    found = {
        "whole": text % (b"hi", b""),
        "a long message": text % (b"hello " * 100_000, b""),
        "empty": b"", "an array": b"[]", "null": b"null", "a string": b'"a"', "truncated": b'{"model": "tiny"', "two objects": b"{} {}", "a byte order mark": b"\xef\xbb\xbf" + BODY,
        "NaN": text % (b"hi", b', "top_p": NaN'), "Infinity": text % (b"hi", b', "x": Infinity'), "1e999": text % (b"hi", b', "top_p": 1e999'),
        "1e999 in an unknown field": text % (b"hi", b', "x": 1e999'), "5000 digits": text % (b"hi", b', "seed": ' + b"9" * 5000), "5000 digits in an unknown field": text % (b"hi", b', "x": ' + b"9" * 5000),
        "a lone surrogate": text % (b"\\ud800", b""), "a lone surrogate in an unknown field": text % (b"hi", b', "x": "\\ud800"'), "a lone surrogate in a name": text % (b"hi", b', "\\ud800": 1'),
        "invalid UTF-8": text % (b"\xff", b""), "invalid UTF-8 in an unknown field": text % (b"hi", b', "x": "\xff"'), "invalid UTF-8 in a name": text % (b"hi", b', "\xff": 1'),
        "an overlong encoding": text % (b"\xc0\xaf", b""), "a control character": text % (b"\x01", b""), "a control character in an unknown field": text % (b"hi", b', "x": "\x01"'),
        "deep": text % (b"hi", b', "x": ' + deep), "deep messages": b'{"model": "tiny", "messages": ' + deep + b"}", "deep tools": text % (b"hi", b', "tools": ' + deep), "100k brackets": b"[" * 100_000,
        "100k brackets in a field": text % (b"hi", b', "x": ' + b"[" * 100_000), "100k brackets in messages": b'{"model": "tiny", "messages": ' + b"[" * 100_000, "a trailing comma": text % (b"hi", b","), "single quotes": b"{'a': 1}",
        "the model twice": b'{"model": "other", ' + (text % (b"hi", b""))[1:], "the model twice, the last unknown": text % (b"hi", b', "model": "other"'), "the model as a number": text % (b"hi", b', "model": 5'),
        "no model": b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}', "the model as null": text % (b"hi", b', "model": null'), "an unknown model": text % (b"hi", b', "model": "../../etc"'), "a long model": text % (b"hi", b', "model": "%b"' % (b"x" * 10_000)),
        "a priority out of range": text % (b"hi", b', "priority": 101'), "a huge priority": text % (b"hi", b', "priority": ' + b"9" * 30), "a wrong slo": text % (b"hi", b', "slo": {"ttft_ms": -1}'), "a wrong resume": text % (b"hi", b', "resume": 5'), "messages as text": b'{"model": "tiny", "messages": "hi"}',
        "no messages": b'{"model": "tiny"}', "a message without a role": b'{"model": "tiny", "messages": [{"content": "hi"}]}', "an unknown field": text % (b"hi", b', "unknown": 1'), "1e5 messages": b'{"model": "tiny", "messages": [' + b'{"role": "user", "content": "a"},' * 10**5 + b'{"role": "user", "content": "a"}]}',
    }  # fmt: skip
    small = {f"small, {name}": posted(each) for name, each in found.items()}
    return small | {f"large, {name}": large(each) for name, each in found.items()}


def sizes() -> dict[str, bytes]:
    """Bodies at the limit and over it, announced, in chunks and never sent."""
    at = BODY + b" " * (LIMIT - len(BODY))
    return {
        "at the limit": posted(at),
        "one byte over": posted(at + b" "),
        "announced only": head(JSON, f"Content-Length: {LIMIT + 1}"),
        "at the limit in chunks": chunked(*(at[start : start + 65536] for start in range(0, LIMIT, 65536))),
        "over it in chunks": chunked(*(at[start : start + 65536] for start in range(0, LIMIT, 65536)), b" "),
        "over it on a path that is none": posted(at + b" ", path="/v1/none"),
        "over it without a type": head(f"Content-Length: {LIMIT + 1}") + at + b" ",
        "over it in one chunk": head(JSON, "Transfer-Encoding: chunked")
        + b"%x\r\n" % (LIMIT + 1)
        + at
        + b" \r\n0\r\n\r\n",
    }


def fields() -> dict[str, bytes]:
    """Fields that no engine takes: the gateway leaves them to it."""
    changes: dict[str, dict[str, object]] = {
        "a prompt longer than the context": {"messages": [{"role": "user", "content": "word " * 5000}]},
        "a billion samples": {"n": 10**9},
        "n as a text": {"n": "5"},
        "five stops": {"stop": ["a"] * 5},
        "a stop of 1 MB": {"stop": "a" * 1_000_000},
        "top_logprobs beyond their bound": {"logprobs": True, "top_logprobs": 21},
        "top_logprobs alone": {"top_logprobs": 2},
        "a negative id in logit_bias": {"logit_bias": {"-1": 1}},
        "50,000 biases": {"logit_bias": {str(index): 1 for index in range(50_000)}},
        "no message": {"messages": []},
        "an unknown role": {"messages": [{"role": "root", "content": "hi"}]},
        "null content": {"messages": [{"role": "user", "content": None}]},
        "an image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
        "a choice of no tool": {"tool_choice": {"type": "function", "function": {"name": "f"}}},
        "a remote schema": {"response_format": schema({"$ref": "http://localhost:1/a"})},
        "30,000 parentheses": {"response_format": schema({"type": "string", "pattern": "(" * 30_000})},
        "a template": {"chat_template": "{{ 1 }}"},
    }
    found = {name: posted(json.dumps(GOOD | change).encode()) for name, change in changes.items()}
    ids = {"a negative token id": [-1], "a token id beyond the vocabulary": [10**6], "a huge token id": [2**63]}
    for name, prompt in ids.items():
        found[name] = posted(json.dumps({"model": "tiny", "prompt": prompt}).encode(), path="/v1/completions")
    deep = json.dumps(GOOD | {"response_format": schema("DEEP")}).replace(
        '"DEEP"', '{"items":' * 1000 + "{}" + "}" * 1000
    )
    found["a schema 1,000 deep"] = posted(deep.encode())
    return found


def patterns() -> dict[str, bytes]:
    """Patterns that a backtracking matcher takes exponential time for; the engine's automata answer them with a 200."""
    found = {}
    for pattern in ("(a+)+$", "(a|a)*b", "(a|aa)+b", "((a+)+)+b"):
        for change in (
            {"guided_regex": pattern},
            {"response_format": schema({"type": "string", "pattern": pattern})},
        ):
            found[f"{pattern} as {min(change)}"] = posted(json.dumps(GOOD | change).encode())
    return found


def other_paths() -> dict[str, bytes]:
    """The same faults on every path that takes a body; errors of some have another format."""
    wrong = {
        "empty": b"",
        "an array": b"[]",
        "no field": b"{}",
        "another model": b'{"model": "other"}',
        "a model that is no text": b'{"model": 5}',
        "no other field": b'{"model": "tiny"}',
        "wrong fields": b'{"model": "tiny", "messages": 5, "prompt": {}, "input": 5, "query": 5, "text_1": 5, "tokens": "a"}',
    }
    found = {
        f"{fault} and {more} bytes on {path}": posted(body + b" " * more, path=path)
        for path in contract.POSTED_PATHS
        for fault, body in wrong.items()
        for more in ([0, LARGE_BYTES] if fault != "empty" else [0])
    }
    for path in contract.POSTED_PATHS:
        found[f"no type on {path}"] = head("Content-Length: 2", path=path) + b"{}"
        found[f"too much on {path}"] = head(JSON, f"Content-Length: {LIMIT + 1}", "Connection: close", path=path)
        found[f"GET on {path}"] = head(method="GET", path=path)
    return found


def schema(document: object) -> object:
    """A response format."""
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": document}}


RAW: Final[dict[str, Callable[[], dict[str, bytes]]]] = {
    "framings": framings,
    "heads": heads,
    "paths": paths,
    "bodies": bodies,
    "sizes": sizes,
    "fields": fields,
    "patterns": patterns,
    "other paths": other_paths,
}
