"""Small random changes to bytes and texts that are valid, from a seed."""

import copy
import json
import random
from typing import Any, Final

TOKENS: Final = (
    b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\\u0000", b"\\ud800", b"null", b"true", b"-1", b"1e999", b"NaN", b"0.5",
    b"9223372036854775808", b"\x00", b"\xff", b"\xc1", b"\xdf\xff\xff\xff\xff", b"<tool_call>", b"</tool_call>", b"<function=",
    b"</parameter>", b"[TOOL_CALLS]", b"[ARGS]", b"<|python_tag|>", b"<think>", b"</think>", "ü日".encode(),
)  # fmt: skip

DEEP: Final = 300


def _deep(container: str) -> Any:
    value: Any = 1
    for _ in range(DEEP):
        value = [value] if container == "list" else {"a": value}
    return value


VALUES: Final[tuple[Any, ...]] = (
    _deep("list"), _deep("object"), {"$ref": "#/a/" + "1" * 5000}, {"type": "string", "pattern": "(" * 3000}, "1" * 5000,
    None, True, False, -1, 0, 1, 2**31, 10**30, 0.5, -1e300, "", "a", "5", "auto", "none", "json_schema", [], [[]], [1], ["a"], [None],
    {}, {"type": "function"}, {"type": "text", "text": "a"}, {"$ref": "#"}, {"a": {"a": {"a": {}}}},
)  # fmt: skip


def mutated(source: bytes, draw: random.Random) -> bytes:
    """Returns `source` with some changes. Half of the JSON objects stay JSON: only values in them are others."""
    if draw.random() < 0.5:
        try:
            return json.dumps(_other_values(json.loads(source), draw)).encode()
        except (ValueError, RecursionError):
            pass
    return _other_bytes(source, draw)


def _other_values(document: Any, draw: random.Random) -> Any:
    """The document with up to three of its values replaced by others, or by values from elsewhere in it."""
    for _ in range(draw.randint(1, 3)):
        places = list(_places(document))
        if not places:
            return copy.deepcopy(draw.choice(VALUES))
        node, key = draw.choice(places)
        other, place = draw.choice(places)
        node[key] = copy.deepcopy(other[place] if draw.random() < 0.3 else draw.choice(VALUES))
    return document


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in the document."""
    found: list[tuple[Any, Any]] = []
    todo = [document]
    while todo:
        node = todo.pop()
        if isinstance(node, dict | list):
            found += [(node, key) for key in (node if isinstance(node, dict) else range(len(node)))]
            todo += node.values() if isinstance(node, dict) else node
    return found


def _other_bytes(source: bytes, draw: random.Random) -> bytes:
    """One to eight changes: a byte, a removed, doubled or moved piece, or a token put in."""
    data = bytearray(source)
    for _ in range(draw.randint(1, 8)):
        place, end = sorted(draw.randrange(len(data) + 1) for _ in range(2))
        match draw.randrange(5):
            case 0 if data:
                data[draw.randrange(len(data))] = draw.randrange(256)
            case 1:
                del data[place : min(end, place + 32)]
            case 2:
                data[place:place] = data[place : min(end, place + 64)]
            case 3:
                data[place:place] = draw.choice(TOKENS)
            case _:
                piece = bytes(data[place : min(end, place + 32)])
                del data[place : place + len(piece)]
                where = draw.randrange(len(data) + 1)
                data[where:where] = piece
    return bytes(data)
