"""Removes from objects and logs what is or looks like a secret. A value too much is better than a key in a bundle.

Values that were redacted in an object are also removed from every text that follows, such as a log that prints them.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

REDACTED: Final = "REDACTED"
_LEAST_REMEMBERED: Final = 6  # characters; a shorter value, such as `true`, would be replaced everywhere

_SECRET_WORDS: Final = (
    r"(?:pass(?:word|wd|phrase)|secret|token|api[-_.]?key|access[-_.]?key|private[-_.]?key|credential|authorization)"
)
_SECRET_NAME: Final = re.compile(rf"(?i){_SECRET_WORDS}|(?:^|[-_.])(?:key|auth|pwd)$|pass$")
# Fields and options that only refer to a secret, counts of tokens, and reasons of conditions.
_REFERENCE: Final = re.compile(
    r"(?i)(?:ref|name|file|path|mount|tokens|tokens_total|key_secret|read_secret|notfound|invalid)$"
)
_DROPPED: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
# Identifiers that look like keys and are none.
_IDENTIFIERS: Final = frozenset({"uid", "image", "imageID", "containerID", "revision", "uri", "resourceVersion"})

_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_KNOWN: Final = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[a-z]_[A-Za-z0-9]{16,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|xox[a-z]-[A-Za-z0-9-]{10,}|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){0,2}"
)
_BEARER: Final = re.compile(r"(?i)\b(bearer|authorization[\"']?\s*[:=]\s*[\"']?basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_USERINFO: Final = re.compile(r"(?<=://)[^\s/@]+@")
# Possessive and bounded, so that a log is read in linear time.
_NAMED: Final = re.compile(r"(?<![\w.-])([\w.-]{1,128}+)(?:\\?[\"'])?\s{0,8}+[:=]\s{0,8}+")
_VALUE: Final = re.compile(r"\\?\"[^\"\n]*\"?|\\?'[^'\n]*'?|[^\s\"',;&})]+")
_HARMLESS: Final = re.compile(r"(?i)[\"']?(true|false|null|none|bearer|basic|[{\[(].*)[\"']?")
_COUNT: Final = re.compile(r"[\d.]+%?")
# A log line has its request's id twice; without it no line could be found again.
_HEX: Final = re.compile(r"(?<![0-9A-Za-z])(?<!sha256:)(?<! id )(?<!\"request\":\")[0-9a-fA-F]{32,}+(?![0-9A-Za-z])")
_MIXED: Final = re.compile(r"[A-Za-z0-9+_=]{20,}|(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/])")


class Redactor:
    """Redacts objects and texts in the order in which they come; `count` is the number of replaced values."""

    def __init__(self) -> None:
        self.count = 0
        self._values: set[str] = set()

    def object(self, value: Any) -> Any:
        """A copy of a JSON value without secrets."""
        if isinstance(value, Mapping):
            return dict(self._fields(value))
        if isinstance(value, list):
            return self._listed(value)
        return self.text(value) if isinstance(value, str) else value

    def text(self, text: str) -> str:
        """The text without secrets."""
        text = self._identifier(text)
        text = _HEX.sub(self._replaced, text)
        return _MIXED.sub(self._if_mixed, text)

    def _identifier(self, text: str) -> str:
        """The text without secrets of a known form; a value that is only long and random stays."""
        for value in sorted(self._values, key=len, reverse=True):
            if value in text:
                self.count += 1
                text = text.replace(value, REDACTED)
        text = _PRIVATE_KEY.sub(self._replaced, text)
        text = _USERINFO.sub(lambda found: f"{self._replaced(found)}@", text)
        text = _BEARER.sub(lambda found: f"{found[1]} {self._replaced(found)}", text)
        text = _KNOWN.sub(self._replaced, text)
        return self._without_assigned(text)

    def _fields(self, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        is_variable = isinstance(value.get("name"), str) and isinstance(value.get("value"), str)
        for name, inner in value.items():  # a field `key` of an object of Kubernetes is a name
            if name in _DROPPED:
                continue
            owner = value["name"] if is_variable and name == "value" else name
            if isinstance(inner, str) and inner and owner != "key" and _is_secret(owner):
                yield name, self._remembered(inner)
            elif isinstance(inner, str) and name in _IDENTIFIERS:
                yield name, self._identifier(inner)
            else:
                yield name, self.object(inner)

    def _listed(self, values: list[Any]) -> list[Any]:
        """A list, which may be arguments: the one after an option such as --api-key is its value."""
        found: list[Any] = []
        for place, value in enumerate(values):
            before = values[place - 1] if place else None
            is_value = isinstance(before, str) and before.startswith("-") and "=" not in before and _is_secret(before)
            found.append(self._remembered(value) if is_value and isinstance(value, str) else self.object(value))
        return found

    def _remembered(self, value: str) -> str:
        if len(value) >= _LEAST_REMEMBERED:
            self._values.add(value)
        self.count += 1
        return REDACTED

    def _without_assigned(self, text: str) -> str:
        """The text without the values that follow a secret's name and a colon or equals sign."""
        parts, done = [], 0
        for found in _NAMED.finditer(text):
            name = found[1]
            value = _VALUE.match(text, found.end()) if found.start() >= done and _is_secret(name) else None
            if value is None or REDACTED in value[0] or _HARMLESS.fullmatch(value[0]):
                continue
            if "token" in name.lower() and _COUNT.fullmatch(value[0]):
                continue
            parts += [text[done : value.start()], self._replaced(value)]
            done = value.end()
        return "".join((*parts, text[done:]))

    def _if_mixed(self, found: re.Match[str]) -> str:
        kinds = (str.isupper, str.islower, str.isdigit)
        return self._replaced(found) if all(any(map(kind, found[0])) for kind in kinds) else found[0]

    def _replaced(self, _: re.Match[str]) -> str:
        self.count += 1
        return REDACTED


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _REFERENCE.search(name) is None
