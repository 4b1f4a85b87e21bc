"""The HTTP process's view of a model's text: encoding of prompts, decoding of tokens, and the model's stop tokens.

It is read from the model's folder with `tokenizers` alone, because the HTTP process never imports torch or
transformers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from sluice_engine.text.chat_template import ChatTemplate, Ending
from sluice_engine.text.detokenizer import (
    ByteLevelDetokenizer,
    Detokenizer,
    WindowDetokenizer,
    sentencepiece_bytes,
    token_bytes,
)
from sluice_engine.text.reasoning import OPENING, fields_read, split
from sluice_engine.text.system_messages import with_one_system_message
from sluice_engine.text.template_budget import RENDER_SECONDS, TemplateFailed, TemplateSlow
from sluice_engine.text.truncation import encode_first
from sluice_engine.tools import Dialect, Tool, dialect_of, why_dialect
from sluice_engine.tools.generic_prompt import with_tools


class TokenizerInvalid(Exception):
    """The model's folder has no usable tokenizer. The message states the fault and the remedy."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message with its content parts joined."""

    role: str
    content: str
    fields: Mapping[str, Any] = field(default_factory=dict)  # further ones of chat templates: tool calls, their ids
    reasoning: str = ""  # that led to an earlier answer
    is_prefix: bool = False  # the output goes on from it


class TextModel:
    """A model's tokenizer and chat template. Thread-safe."""

    def __init__(self, tokenizer: Any, plain: Any, template: ChatTemplate | None, stop_token_ids: tuple[int, ...]):
        self._tokenizer = tokenizer
        self._plain = plain
        self._template = template
        self._reasoning_fields = fields_read(template.source) if template is not None else ()
        self.stop_token_ids = stop_token_ids
        self._table: list[bytes] | None = _byte_table(tokenizer)
        self._longest = max((len(entry) for entry in self._table), default=0) if self._table else 0
        bytes_of_tokens = set().union(*self._table) if self._table else set(range(256))
        self._missing = frozenset(range(128, 256)) - bytes_of_tokens  # JSON escapes the other ones
        added = tokenizer.get_added_tokens_decoder()
        self._added = {index: token.content.encode() for index, token in added.items()}
        self._longest = max(self._longest, *map(len, self._added.values()), 0, 0)
        self._full_table = [self._added.get(index, entry) for index, entry in enumerate(self._table or ())]

    def encode_prompt(self, prompt: str, *, special_tokens: bool = True) -> list[int]:
        """A raw prompt's token ids from the model's own tokenizer, including its BOS if `special_tokens`."""
        return _encoded(self._tokenizer, prompt, special_tokens=special_tokens)

    def encode_plain(self, text: str) -> list[int]:
        """The token ids of a text within an output: no token is added, and none of it is a control token."""
        return _encoded(self._plain, text)

    def encode_first(self, text: str, most: int) -> list[int]:
        """The first tokens of a text, at most `most` with the special ones. Raises NoRoom."""
        return encode_first(self._tokenizer, (text,), most)[0]

    def encode_pair(self, first: str, second: str, most: int | None = None) -> tuple[list[int], list[int]]:
        """A text pair for a cross-encoder: token ids and token type ids, all or at most `most`. Raises NoRoom."""
        if most is not None:
            return encode_first(self._tokenizer, (first, second), most)
        (encoding,) = self._tokenizer.encode_batch_fast([(first, second)])
        return list(encoding.ids), list(encoding.type_ids)

    @property
    def chats(self) -> bool:
        """True if the model has a chat template."""
        return self._template is not None

    @property
    def tool_dialect(self) -> Dialect | None:
        """The notation in which the model writes tool calls; None for a template that knows no tools."""
        return None if self._template is None else dialect_of(self._template.source)

    @property
    def why_dialect(self) -> str:
        """How tool calls are read and why, as a sentence for the log; empty without a chat template."""
        return "" if self._template is None else why_dialect(self._template.source)

    @property
    def reasons(self) -> bool:
        """True if the model separates its reasoning from its answer."""
        return self._template is not None and OPENING in self._template.source

    def encode_chat(
        self,
        messages: Sequence[Message],
        variables: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] = (),
        seconds: float = RENDER_SECONDS,
        ending: Ending = "answer",
    ) -> list[int]:
        """The rendered template as token ids; control tokens come only from the template. `variables` are the
        request's own variables of the template. A template that knows no tools gets them as text. `seconds` of processor
        time are the most that rendering takes.

        Raises TemplateFailed, TemplateSlow.
        """
        if self._template is None:
            raise TemplateFailed("this model has no chat template; use /v1/completions")
        spoken = [self._fields(each) for each in messages]
        given = dict(variables or {})
        if self.tool_dialect is None:
            spoken = with_tools(spoken, tools)
        elif tools:
            given["tools"] = [tool.as_json() for tool in tools]
        ids: list[int] = []
        for text, plain in _rendered(self._template, spoken, given, seconds, ending):
            encoder = self._plain if plain else self._tokenizer
            ids.extend(_encoded(encoder, text))
        return ids

    def _fields(self, message: Message) -> dict[str, Any]:
        """A message as the template reads it. It cannot find the reasoning within the text, because marks there are text."""
        content, reasoning = message.content, message.reasoning
        if message.role == "assistant" and self.reasons and not reasoning:
            reasoning, content = split(content)
        named = dict.fromkeys(self._reasoning_fields, reasoning) if reasoning else {}
        return {"role": message.role, "content": content, **message.fields, **named}

    def unwritable(self, text: str) -> str:
        """The first character of `text` that no tokens of the vocabulary spell; "" if there is none."""
        return next((each for each in text if not self._missing.isdisjoint(each.encode())), "") if self._missing else ""

    def fewest_tokens(self, text: str) -> int:
        """A lower bound on the number of tokens of `text`, without encoding it: its bytes over the longest token's
        bytes.

        0 for a tokenizer that is not byte-level (its normaliser may shorten text).
        """
        return len(text.encode()) // self._longest if self._table is not None and self._longest else 0

    def token_bytes(self, token: int) -> bytes:
        """One token's bytes; special tokens give their name, unknown ids give b""."""
        added = self._added.get(token)
        if added is not None:
            return added
        if self._table is not None:
            return self._table[token] if token < len(self._table) else b""
        return sentencepiece_bytes(self._tokenizer.id_to_token(token) or "")

    def token_text(self, token: int) -> str:
        """One token as the vocabulary spells it."""
        return self._tokenizer.id_to_token(token) or ""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens included."""
        decoder = self.detokenizer(special_tokens=True)
        return decoder.feed(token_ids) + decoder.flush()

    def detokenizer(self, *, special_tokens: bool = False) -> Detokenizer:
        """A new decoder for one request. Special tokens have no text unless `special_tokens`."""
        if self._table is None:
            return WindowDetokenizer(self._tokenizer, special_tokens=special_tokens)
        return ByteLevelDetokenizer(self._full_table if special_tokens else self._table)


def _rendered(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    seconds: float,
    ending: Ending,
) -> list[tuple[str, bool]]:
    try:
        return template.render(messages, variables, seconds, ending)
    except TemplateSlow:
        raise
    except TemplateFailed:
        fewer = with_one_system_message(messages)
        if fewer is None:
            raise
        return template.render(fewer, variables, seconds, ending)


def load_text_model(folder: Path) -> TextModel:
    """Read tokenizer.json, tokenizer_config.json and the chat template. Raises TokenizerInvalid."""
    path = folder / "tokenizer.json"
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise TokenizerInvalid(f"{folder} has no tokenizer.json, which every model needs") from error
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerInvalid(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        tokenizer = Tokenizer.from_str(source)
        plain = Tokenizer.from_str(_all_special(source))
    except Exception as error:
        raise TokenizerInvalid(f"{path} is not a tokenizer: {error}") from error
    plain.encode_special_tokens = True
    for each in (tokenizer, plain):
        each.no_truncation()
        each.no_padding()
    config = _read_json(folder / "tokenizer_config.json")
    return TextModel(tokenizer, plain, _chat_template(folder, config, tokenizer), _stop_token_ids(folder, tokenizer))


def _all_special(source: str) -> str:
    """The tokenizer file with every added token marked special, so that `encode_special_tokens` encodes all of them as
    text.
    """
    document = json.loads(source)
    for token in document.get("added_tokens") or ():
        token["special"] = True
    return json.dumps(document)


def _encoded(tokenizer: Any, text: str, *, special_tokens: bool = False) -> list[int]:
    """The token ids of a text. Only the batch methods of `tokenizers` release the GIL: `encode` would hold the event loop
    for as long as a thread encodes."""
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=special_tokens)
    return list(encoding.ids)


def _byte_table(tokenizer: Any) -> list[bytes] | None:
    """id → bytes for a byte-level tokenizer, b"" for special tokens; None for any other kind."""
    if type(tokenizer.decoder).__name__ != "ByteLevel":
        return None
    added = tokenizer.get_added_tokens_decoder()
    special = {index for index, token in added.items() if token.special}
    table: list[bytes] = []
    for index in range(tokenizer.get_vocab_size(with_added_tokens=True)):
        token = tokenizer.id_to_token(index)
        table.append(b"" if token is None or index in special else token_bytes(token))
    return table


def _chat_template(folder: Path, config: dict[str, Any], tokenizer: Any) -> ChatTemplate | None:
    source = config.get("chat_template")
    if isinstance(source, list):  # several named templates: use the default one
        source = next((entry.get("template") for entry in source if entry.get("name") == "default"), None)
    own_file = folder / "chat_template.jinja"
    if own_file.is_file():
        source = own_file.read_text(encoding="utf-8")
    if not isinstance(source, str):
        return None
    control = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    variables = {name: _token_text(config.get(name)) for name in ("bos_token", "eos_token", "pad_token", "unk_token")}
    try:
        return ChatTemplate(source, control, {name: text for name, text in variables.items() if text is not None})
    except TemplateFailed as error:
        raise TokenizerInvalid(f"{folder}: {error}") from error


def _stop_token_ids(folder: Path, tokenizer: Any) -> tuple[int, ...]:
    """Every token that ends an output: the tokenizer's EOS and those of generation_config.json and config.json."""
    found: set[int] = set()
    eos = _token_text(_read_json(folder / "tokenizer_config.json").get("eos_token"))
    if eos is not None and (index := tokenizer.token_to_id(eos)) is not None:
        found.add(index)
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        entries = value if isinstance(value, list) else [value]
        found.update(entry for entry in entries if type(entry) is int)
    return tuple(sorted(found))


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    """The file's JSON object, or {} if the file does not exist. Raises TokenizerInvalid."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TokenizerInvalid(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerInvalid(f"{path} must hold a JSON object")
    return value
