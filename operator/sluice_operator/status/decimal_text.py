"""Numbers with decimals as text: the API has no floats, because JSON writers round them differently."""

_WHOLE_DIGITS = 15  # a float is exact up to this many


def decimal_text(value: float, digits: int) -> str:
    """Return the number with this many significant digits, without trailing zeros and, where possible, an exponent."""
    return f"{float(f'{value:.{digits}g}'):.{_WHOLE_DIGITS}g}"


def rounded_text(value: float, decimals: int) -> str:
    """Return the number with at most this many decimals, without trailing zeros."""
    return f"{round(value, decimals):.{_WHOLE_DIGITS}g}"
