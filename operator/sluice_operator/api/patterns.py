"""Defines the constrained string types of the resource, and a readable description of each pattern.

Patterns use only syntax that Go's RE2 (API server) and Rust's regex (pydantic) share: ASCII classes, no look-around.
"""

from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from sluice_operator.api.cron import CRON, TIMEZONE

RESOURCE_NAME: Final = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
MODEL_URI: Final = (
    r"^(pvc://[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?(/[^\x00-\x20\x7f]*)?|file:///[^\x00-\x20\x7f]+"
    r"|hf://[A-Za-z0-9][-A-Za-z0-9._]*/[A-Za-z0-9][-A-Za-z0-9._]*(/[^\x00-\x20\x7f@]+[.]gguf)?(@[A-Za-z0-9][-A-Za-z0-9._/]*)?"
    r"|s3://[a-z0-9][-a-z0-9.]{1,61}[a-z0-9](/[^\x00-\x20\x7f]*)?)$"
)
SECRET_KEY: Final = r"^[.]?[-_A-Za-z0-9][-._A-Za-z0-9]*$"
OBJECT_NAME: Final = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*$"
SERVED_NAME: Final = r"^[A-Za-z0-9]([-A-Za-z0-9._/]*[A-Za-z0-9])?$"
IMAGE: Final = r"^[!-~]+$"
HEADER_NAME: Final = r"^[A-Za-z0-9]([-A-Za-z0-9_]*[A-Za-z0-9])?$"
EXTENDED_RESOURCE: Final = r"^[a-z0-9]+((-+|[.])[a-z0-9]+)*/[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?$"
WHOLE_UNITS: Final = "^[0-9]+([.]0+)?([kMGT]|[KMGT]i)?$"  # of a quantity
_PART: Final = r"(\.[0-9]{1,9})?"
# Less than 2**63, to which the API server would lower it.
QUANTITY: Final = (
    f"^([0-9]{{1,18}}{_PART}m?|[0-9]{{1,15}}{_PART}(k|Ki)|[0-9]{{1,12}}{_PART}Mi?|[0-9]{{1,9}}{_PART}Gi?"
    f"|[0-9]{{1,6}}{_PART}Ti?)$"
)
MEMORY_SIZE: Final = r"^[1-9]([0-9]{0,17}|[0-9]{0,14}(k|Ki)|[0-9]{0,11}Mi?|[0-9]{0,8}Gi?|[0-9]{0,5}Ti?)$"
NUMBER: Final = r"^-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?$"
ERROR_PERCENT: Final = r"^[0-9]{1,2}(\.[0-9]{1,3})?$"
PERCENT: Final = r"^([1-9][0-9]?(\.[0-9]{1,3})?|100)$"
VOLUME_NAME: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
MOUNT_PATH: Final = r"^(/[.]?[A-Za-z0-9_][-A-Za-z0-9_.]*)+$"
RELATIVE_PATH: Final = r"^[.]?[A-Za-z0-9_][-A-Za-z0-9_.]*(/[.]?[A-Za-z0-9_][-A-Za-z0-9_.]*)*$"
ENV_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]*$"
_LABEL_KEY: Final = "([a-z0-9]+((-+|[.])[a-z0-9]+)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
LABEL_KEY: Final = f"^{_LABEL_KEY}$"
TAINT_KEY: Final = f"^({_LABEL_KEY})?$"
# Longer keys exist, but the part before the slash may have 253 characters, which no pattern of this syntax bounds.
MAX_LABEL_KEY: Final = 253
FIELD_PATH: Final = (
    rf"^(metadata[.](name|namespace|uid|(labels|annotations)\['{_LABEL_KEY}'\])|spec[.](nodeName|serviceAccountName)"
    r"|status[.](host|pod)IPs?)$"
)
LABEL_VALUE: Final = r"^([A-Za-z0-9]+([-_.]+[A-Za-z0-9]+)*)?$"

PATTERN_WORDS: Final = {
    CRON: 'five fields as crontab has them, such as "0 8 * * MON-FRI", or @daily and the like',
    TIMEZONE: "a time zone such as UTC or Europe/Berlin",
    MODEL_URI: "hf://org/name@revision, s3://bucket/prefix, pvc://claim/path or file:///path, without spaces",
    SECRET_KEY: "letters, digits and - . _ (not . alone, nor .. first)",
    OBJECT_NAME: "lower-case letters, digits and - . (a letter or digit at both ends)",
    SERVED_NAME: "letters, digits and - . _ / (a letter or digit at both ends)",
    IMAGE: "an image reference without spaces",
    HEADER_NAME: "a header name such as x-session-id: letters, digits and - _ (a letter or digit at both ends)",
    EXTENDED_RESOURCE: "an extended resource such as nvidia.com/gpu",
    QUANTITY: "a Kubernetes quantity such as 500m, 2 or 4Gi",
    MEMORY_SIZE: "a number of bytes such as 2Gi",
    ERROR_PERCENT: 'a percentage from "0" to "99.999", written as text',
    PERCENT: 'a percentage from "1" to "100", written as text',
    VOLUME_NAME: "lower-case letters, digits and - (a letter or digit at both ends)",
    MOUNT_PATH: "an absolute path such as /etc/extra, without a .. segment or a / at its end",
    RELATIVE_PATH: "a relative path such as a/b, without a .. segment",
    ENV_NAME: "letters, digits and _ (no digit first)",
    LABEL_KEY: "a label key such as team or example.com/team",
    TAINT_KEY: "a taint key such as spot or example.com/spot",
    FIELD_PATH: "a field of the pod such as metadata.name or metadata.labels['team']",
    LABEL_VALUE: "letters, digits and - _ . (a letter or digit at both ends)",
}


def _as_text(value: Any) -> Any:
    """Return an integer as a string: `cpu: 4` means the same as `cpu: "4"`. The pattern checks every other value."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Cron = Annotated[str, Field(max_length=128, pattern=CRON)]
TimeZone = Annotated[str, Field(max_length=64, pattern=TIMEZONE)]
Quantity = Annotated[
    str,
    Field(max_length=32, pattern=QUANTITY),
    BeforeValidator(_as_text),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "minimum": 0, "maxLength": 32, "pattern": QUANTITY}),
]
MemorySize = Annotated[str, Field(max_length=20, pattern=MEMORY_SIZE)]
LabelKey = Annotated[str, Field(max_length=MAX_LABEL_KEY, pattern=LABEL_KEY)]
LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]
AnnotationValue = Annotated[str, Field(max_length=4096)]

_UNITS: Final = {
    "": Decimal(1), "m": Decimal("0.001"),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
}  # fmt: skip


def amount_of(quantity: str) -> Decimal:
    """Return a quantity as a plain number (bytes, cores or units of a device): "2Gi" → 2147483648, "500m" → 0.5.

    The text must match QUANTITY or MEMORY_SIZE; parsed resources contain only such quantities.
    """
    digits = quantity.rstrip("mkKMGTi")
    return Decimal(digits) * _UNITS[quantity[len(digits) :]]
