"""Any text to token ids and back: characters, bytes in pieces, or the vocabulary of a public checkpoint.

The tokenizer of `tokenizer.py` is made for pairs of sentences: it normalises and frames them. Here
nothing may be lost: decode(encode(text)) is the text, line ends and spaces too.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

# Threads would speed up large texts, but the library then complains on stderr at every later fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as LibraryTokenizer

from headwise.errors import ConfigError, RunError
from headwise.files import write_text_atomically

_EACH = r"[\s\S]"  # any character, line ends too
_WORD = 512  # characters without white space (or of nothing else) that pieces are learnt from at a time
UNKNOWN, END, PADDING, CLASS, MASK = "<unk>", "<end>", "<pad>", "<cls>", "<mask>"
# Names that public vocabularies give the same marks, the more usual first.
_NAMES = {
    "pad": (PADDING, "[PAD]", "<|pad|>", "<|finetune_right_pad_id|>"),
    "end": (END, "<|endoftext|>", "</s>", "<|end_of_text|>", "[SEP]", "<eos>"),
    "begin": ("<s>", "<|begin_of_text|>", "[CLS]", CLASS, "<bos>"),
    "mask": (MASK, "[MASK]"),
    "unk": (UNKNOWN, "[UNK]"),
}


class TextTokenizer:
    """A vocabulary of the `tokenizers` library, and the ids of its marks where it has them.

    pad_id, begin_id, end_id, mask_id, unk_id: None where the vocabulary has no such token.
    """

    def __init__(self, library: LibraryTokenizer) -> None:
        self._library = library
        library.no_padding()
        library.no_truncation()
        self.pad_id, self.end_id, self.begin_id, self.mask_id, self.unk_id = (
            self._find(kind) for kind in ("pad", "end", "begin", "mask", "unk")
        )

    @classmethod
    def train(
        cls, texts: Iterable[str], kind: str, vocab_size: int, marks: Sequence[str] = ()
    ) -> TextTokenizer:
        """Learn a vocabulary from the text.

        kind: "characters", those of the text and no other (another one becomes <unk>); "bpe",
        byte-pair encoding over UTF-8, which has a token for every text.
        vocab_size: most entries of kind bpe. marks: tokens that no text holds, given the first ids.

        Errors: ConfigError for a vocab_size that cannot hold the 256 bytes and the marks.
        Law: decode(encode(text)) is the text, if its characters are known.
        """
        if kind == "characters":
            counts: Counter[str] = Counter()
            for text in texts:
                counts.update(text)
            names = [UNKNOWN, *marks, *sorted(counts)]
            vocabulary = {name: index for index, name in enumerate(names)}
            library = LibraryTokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
            library.pre_tokenizer = pre_tokenizers.Split(Regex(_EACH), behavior="isolated")
            library.decoder = decoders.Fuse()
            return cls(library)
        least = 256 + len(marks)
        if vocab_size < least:
            raise ConfigError(
                f"data.vocab_size must hold the 256 bytes and {len(marks)} marks: got {vocab_size}; "
                f"{least} is the least, some thousands are usual"
            )
        library = LibraryTokenizer(models.BPE())
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        # the trainer's time grows with the square of a word, and a line of genes is one word
        short = pre_tokenizers.Split(Regex(rf"\S{{{_WORD}}}|\s{{{_WORD}}}"), behavior="isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([short, words])
        library.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,  # a pair seen once is a piece that nothing can be learnt about
            special_tokens=list(marks),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        library.train_from_iterator(texts, trainer=trainer)
        library.pre_tokenizer = words
        # a mark typed by a user is text: only the vocabulary keeps it
        content: Any = json.loads(library.to_str())
        content["added_tokens"] = []
        return cls(LibraryTokenizer.from_str(json.dumps(content)))

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary."""
        return self._library.get_vocab_size()

    def encode(self, texts: Sequence[str], *, framed: bool = False) -> list[list[int]]:
        """The ids of each text; framed: with the marks that the vocabulary's own template adds."""
        found = self._library.encode_batch(list(texts), add_special_tokens=framed)
        return [encoding.ids for encoding in found]

    def encode_long(self, text: str) -> npt.NDArray[np.uint32]:
        """The ids of one long text: what `encode` gives, for characters a hundred times as fast."""
        if self._id_of_character is None:
            return np.asarray(self.encode([text])[0], dtype=np.uint32)
        characters = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        return self._id_of_character[characters]

    @cached_property
    def _id_of_character(self) -> npt.NDArray[np.uint32] | None:
        """By code point; None where tokens are more than single characters."""
        content: dict[str, Any] = json.loads(self._library.to_str())
        splits = cast("dict[str, Any]", content["pre_tokenizer"] or {})
        is_plain = content["normalizer"] is None and content["post_processor"] is None
        if not is_plain or content["added_tokens"] or splits.get("pattern") != {"Regex": _EACH}:
            return None
        if content["model"]["type"] != "WordLevel" or splits["behavior"] != "Isolated" or splits["invert"]:
            return None
        vocabulary = cast("dict[str, int]", content["model"]["vocab"])
        ids = np.full(0x110000, vocabulary[content["model"]["unk_token"]], dtype=np.uint32)
        for name, index in vocabulary.items():
            if len(name) == 1:
                ids[ord(name)] = index
        return ids

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids; marks are dropped, bytes that are no character become U+FFFD."""
        marks = {i for i in (self.pad_id, self.end_id, self.begin_id, self.mask_id) if i is not None}
        kept = [[int(index) for index in row if index not in marks] for row in rows]
        return [self._library.decode(row, skip_special_tokens=True) for row in kept]

    def names(self, ids: Sequence[int]) -> list[str]:
        """A readable name for each id, as for the axes of an attention map."""
        return [self._name(index) for index in ids]

    def save(self, path: Path) -> None:
        """Write the library's JSON, atomically. Errors: StorageError as write_atomically."""
        write_text_atomically(path, self._library.to_str(pretty=True))

    @classmethod
    def load(cls, path: Path) -> TextTokenizer:
        """Read what `save` wrote, or the tokenizer.json of a public checkpoint.

        Errors: RunError naming the file when it is missing, damaged, or no tokenizer.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise RunError(
                f"cannot read the tokenizer {path}: {error.strerror}; train first, or name a run"
            ) from error
        except ValueError as error:
            raise RunError(f"{path} is damaged: expected JSON, got {error}; restore it") from error
        try:
            return cls(LibraryTokenizer.from_str(text))
        except Exception as error:  # the library raises bare Exception
            raise RunError(f"{path} is damaged or no tokenizer: {error}; restore it") from error

    def _find(self, kind: str) -> int | None:
        found = (self._library.token_to_id(name) for name in _NAMES[kind])
        return next((index for index in found if index is not None), None)

    def _name(self, index: int) -> str:
        name = self._library.id_to_token(index)
        if name is None:
            return str(index)
        text = self._library.decode([index], skip_special_tokens=False)
        shown = text if text and "\ufffd" not in text else name
        return shown.replace(" ", "\u2581").replace("\n", "\\n")
