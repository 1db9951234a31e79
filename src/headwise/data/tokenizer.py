"""Text to subword ids and back: byte-pair encoding over one vocabulary for source and target.

Neural Machine Translation of Rare Words with Subword Units (Sennrich et al. 2016), as the
`tokenizers` library does it, with three decisions of ours:

- A word carries its leading space, and every text is given one, so that a word has the same pieces
  at the start of a sentence and inside it. Spaces are real characters: nothing has to stand for them
  and decoding is plain joining.
- Each digit, punctuation mark, symbol and white space stands alone; merges happen inside words only.
- The library never hears of special tokens, so '<eos>' typed by a user is five ordinary characters.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

# Threads would speed up large texts, but the library then complains on stderr at every later fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as LibraryTokenizer

from headwise.errors import ConfigError, RunError
from headwise.files import write_text_atomically

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
UNKNOWN_MARK = "\u2047"
SPACE_MARK = "\u2581"

# A word with the space before it, else one character alone.
_UNITS = r" ?[^\s\p{P}\p{S}\p{N}]+|[\s\p{P}\p{S}\p{N}]"
# '<' and '>' are symbols and stand alone, so no learnt piece can ever look like this.
_TAG = re.compile(r"<[^<>\s]+>")
_CHUNK = 4096


class Tokenizer:
    """A joint subword vocabulary with fixed ids for padding, begin, end and unknown.

    Ids 0 to 3 are <pad>, <bos>, <eos>, <unk>; then the tags, then characters, then merged pieces.
    Law: decode(encode([s])) == [NFC(s)] for every s of known characters without a tag in front.
    """

    pad_id = 0
    bos_id = 1
    eos_id = 2
    unk_id = 3

    def __init__(self, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> None:
        self._library = LibraryTokenizer(models.BPE(vocabulary, merges, unk_token=SPECIALS[self.unk_id]))
        self._library.pre_tokenizer = _units()
        self._names = sorted(vocabulary, key=vocabulary.__getitem__)
        tags: dict[str, int] = {}
        for index, name in enumerate(self._names[len(SPECIALS) :], start=len(SPECIALS)):
            if not _TAG.fullmatch(name):
                break
            tags[name] = index
        self._tags = tags
        silent = len(SPECIALS) + len(tags)
        self._texts = [""] * silent + self._names[silent:]
        self._texts[self.unk_id] = UNKNOWN_MARK

    @classmethod
    def train(cls, texts: Iterable[str], vocab_size: int, tags: Sequence[str] = ()) -> Tokenizer:
        """Learn the merges from the training text: always the most frequent pair, ties by id.

        vocab_size: most entries, special tokens and tags included; a small text may give fewer.
        tags: tokens like '<de>' that count only at the very start of a text.

        Errors: ConfigError for a tag not of that form, given twice or taken, or a vocab_size that
        cannot hold every character of the text.
        Law: depends on the texts as a multiset alone, never on threads, hash seeds or their order.
        """
        for tag in tags:
            if not _TAG.fullmatch(tag) or tag in SPECIALS or list(tags).count(tag) > 1:
                raise ConfigError(
                    f"a tag must look like <de>, differ from the others and from "
                    f"{', '.join(SPECIALS)}: got {tag!r}"
                )
        prepared = [rest for rest in (_prepare(text, tags)[1] for text in texts) if rest]
        reserved = len(SPECIALS) + len(tags)
        alphabet = {character for text in prepared for character in text}
        if vocab_size < reserved + len(alphabet):
            raise ConfigError(
                f"vocab_size must hold every character of the text: got vocab_size={vocab_size}, "
                f"the text has {len(alphabet)} characters and there are {reserved} special tokens; "
                f"{reserved + len(alphabet)} is the least, some hundreds more are useful"
            )
        library = LibraryTokenizer(models.BPE(unk_token=SPECIALS[cls.unk_id]))
        library.pre_tokenizer = _units()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,  # a pair seen once is a piece that nothing can be learnt about
            special_tokens=[*SPECIALS, *tags],
            show_progress=False,
        )
        library.train_from_iterator(prepared, trainer=trainer)
        learnt = json.loads(library.to_str())["model"]
        return cls(learnt["vocab"], [(left, right) for left, right in learnt["merges"]])

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary, special tokens and tags included."""
        return len(self._names)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, in the order of their ids."""
        return tuple(self._tags)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without begin or end.

        A tag at the very start becomes its one id, and a space after it belongs to it; an unknown
        character becomes one <unk>; an empty text has no ids.
        """
        return [
            ids
            for start in range(0, len(texts), _CHUNK)
            for ids in self._encode(texts[start : start + _CHUNK])
        ]

    def _encode(self, texts: Sequence[str]) -> Iterator[list[int]]:
        prepared = [_prepare(text, self._tags) for text in texts]
        encodings = self._library.encode_batch_fast([rest for _, rest in prepared], add_special_tokens=False)
        for (tag, _), encoding in zip(prepared, encodings, strict=True):
            yield encoding.ids if tag is None else [self._tags[tag], *encoding.ids]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids; special tokens and tags are dropped, <unk> shows as U+2047."""
        return ["".join([self._texts[index] for index in row]).removeprefix(" ") for row in ids]

    def names(self, ids: Sequence[int]) -> list[str]:
        """A readable name for each id, special tokens included; a space shows as U+2581."""
        return [self._names[index].replace(" ", SPACE_MARK) for index in ids]

    def pieces(self, text: str) -> list[str]:
        """The readable names of the text's ids, as for the axes of an attention map."""
        return self.names(self.encode([text])[0])

    def save(self, path: Path) -> None:
        """Write the vocabulary and the merges as the library's JSON, atomically.

        Errors: StorageError as write_atomically.
        """
        write_text_atomically(path, self._library.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read what `save` wrote.

        Errors: RunError naming the file when it is missing, damaged, or not one of ours.
        """
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RunError(
                f"cannot read the tokenizer {path}: {error.strerror}; train first, or name a run"
            ) from error
        except (ValueError, RecursionError) as error:
            raise RunError(
                f"{path} is damaged: expected JSON, got {error}; restore it or train again"
            ) from error
        try:
            model = content["model"]
            vocabulary = cast("dict[str, int]", dict(model["vocab"]))
            merges = [_merge(entry) for entry in model["merges"]]
            ours = (
                content["pre_tokenizer"]["pattern"]["Regex"] == _UNITS
                and [vocabulary.get(name) for name in SPECIALS] == list(range(len(SPECIALS)))
                and sorted(vocabulary.values()) == list(range(len(vocabulary)))
            )
            tokenizer = cls(vocabulary, merges) if ours else None
        except Exception as error:  # the library raises bare Exception for merges outside the vocabulary
            raise RunError(_foreign(path, f"{type(error).__name__}: {error}")) from error
        if tokenizer is None:
            raise RunError(_foreign(path, "other special tokens, ids or word boundaries"))
        return tokenizer


def _units() -> Any:
    return pre_tokenizers.Split(Regex(_UNITS), behavior="isolated")


def _prepare(text: str, tags: Iterable[str]) -> tuple[str | None, str]:
    """Split off a tag in front; the rest in NFC, with the leading space of its first word."""
    # the tag was written for us by ASCII code, so it is looked for before normalisation
    tag = next((tag for tag in tags if text.startswith(tag)), None)
    rest = text if tag is None else text[len(tag) :].removeprefix(" ")
    # NFC here rather than in the library, whose Unicode tables are older than Python's
    return tag, " " + unicodedata.normalize("NFC", rest) if rest else ""


def _merge(entry: Any) -> tuple[str, str]:
    left, right = entry
    if not (isinstance(left, str) and isinstance(right, str)):
        raise TypeError(f"a merge joins two pieces, got {entry!r}")
    return left, right


def _foreign(path: Path, got: str) -> str:
    return f"{path} must be a tokenizer that headwise saved: got {got}; restore it or train again"
