"""ctypes mirrors of the compiled library's C structs (`engine/native/`), compared with the library's layout at load."""

import ctypes
from collections.abc import Mapping


class Work(ctypes.Structure):
    """`struct work` of kernels.h: one step, shared by all layers."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "tokens", "heads", "kv_heads")),
        *((name, ctypes.c_int64) for name in ("dim", "block_size", "bf16", "threads")),
        *((name, ctypes.c_void_p) for name in ("row_first", "row_start", "table_first", "tables", "slots")),
        *((name, ctypes.c_int64) for name in ("tile_rows", "int8_cache")),
    )


class Layer(ctypes.Structure):
    """`struct layer` of kernels.h: one layer's tensors."""

    _fields_ = (
        ("query", ctypes.c_void_p),
        ("query_token", ctypes.c_int64),
        ("query_head", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("key_token", "key_head", "value_token", "value_head")),
        ("key_cache", ctypes.c_void_p),
        ("value_cache", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("window", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


class Product(ctypes.Structure):
    """`struct product` of kernels.h."""

    _fields_ = (
        ("packed", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("inner", "outer", "kind", "int8", "tile_rows")),
    )


class DecoderLayer(ctypes.Structure):
    """`struct decoder_layer` of decoder/decoder.h."""

    _fields_ = (
        *((name, Product) for name in ("query_key_value", "output", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("norm_before", "norm_after", "norm_query", "norm_key")),
        *((name, ctypes.c_void_p) for name in ("key_cache", "value_cache")),
        *((name, ctypes.c_int64) for name in ("group", "window")),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


class Decoder(ctypes.Structure):
    """`struct decoder` of decoder/decoder.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "hidden", "inner", "vocab")),
        ("layer", ctypes.POINTER(DecoderLayer)),
        ("norm_last", ctypes.c_void_p),
        ("head", Product),
        ("epsilon", ctypes.c_float),
    )


class Step(ctypes.Structure):
    """`struct step` of decoder/decoder.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("ids", "hidden", "positions", "wanted")),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("cosine", "sine", "scratch", "logits")),
        *((name, ctypes.c_double) for name in ("seconds", "share")),
        *((name, ctypes.c_int64) for name in ("firm", "kept", "spent")),
        *((name, ctypes.c_void_p) for name in ("best", "highest")),
    )


MIRRORS: Mapping[str, type[ctypes.Structure]] = {
    "work": Work,
    "layer": Layer,
    "product": Product,
    "decoder_layer": DecoderLayer,
    "decoder": Decoder,
    "step": Step,
}


class _Layout(ctypes.Structure):
    """`struct layout` of kernels.h."""

    _fields_ = (("name", ctypes.c_char_p), ("offset", ctypes.c_int64), ("size", ctypes.c_int64))


def check_layouts(library: ctypes.CDLL, mirrors: Mapping[str, type[ctypes.Structure]]) -> None:
    """Compare each struct's size and each field's offset with the library's. Raises OSError that names the
    difference.
    """
    compiled, mirrored = _compiled(library), _mirrored(mirrors)
    for name in sorted(compiled.keys() | mirrored.keys()):
        if compiled.get(name) != mirrored.get(name):
            there, here = (_words(layouts.get(name)) for layouts in (compiled, mirrored))
            raise OSError(f"it was compiled from other sources (struct {name} is {there} there and {here} here)")


def _compiled(library: ctypes.CDLL) -> dict[str, tuple[int, int]]:
    """(offset, size) by "struct" and "struct.field", as the library was compiled."""
    entry = library.sluice_layout
    entry.argtypes, entry.restype = (ctypes.c_int64,), ctypes.POINTER(_Layout)
    found: dict[str, tuple[int, int]] = {}
    while pointer := entry(len(found)):
        layout = pointer.contents
        found[layout.name.decode()] = layout.offset, layout.size
    return found


def _mirrored(mirrors: Mapping[str, type[ctypes.Structure]]) -> dict[str, tuple[int, int]]:
    """(offset, size) by "struct" and "struct.field", as these classes define them."""
    found: dict[str, tuple[int, int]] = {}
    for name, mirror in mirrors.items():
        found[name] = 0, ctypes.sizeof(mirror)
        for field, *_ in mirror._fields_:
            descriptor = getattr(mirror, field)
            found[f"{name}.{field}"] = descriptor.offset, descriptor.size
    return found


def _words(layout: tuple[int, int] | None) -> str:
    return "absent" if layout is None else f"{layout[1]} bytes at {layout[0]}"
