"""The batches that the zoo's models are given, and the losses that go with them.

No two sizes are equal, so that no axis can be taken for another: 5 rows, 11 tokens (9 on the decoder's
side), 4 heads of width 12, model width 48, feed-forward width 80, 101 tokens. Rows are arithmetic
progressions: there is something to learn, and every word differs from its neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

PAD, BOS, EOS, MASK = 0, 1, 2, 3
FIRST = 4  # the first id that is a word
VOCAB = 101
WIDTH, HEADS, FEED_FORWARD, LAYERS = 48, 4, 80, 2
MAX_LENGTH = 40
LENGTHS = (11, 7, 11, 5, 9)
TARGET_LENGTHS = (7, 9, 4, 9, 6)
IGNORED = -100  # transformers' mark of a position without a label
CLASSES = 7


def progressions(lengths: tuple[int, ...], seed: int, to: int | None = None) -> Tensor:
    """Rows of words, padded on the right to the longest (or to `to`)."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths) if to is None else to
    ids = torch.full((len(lengths), longest), PAD)
    for row, length in enumerate(lengths):
        start = int(torch.randint(0, VOCAB - FIRST, (), generator=generator))
        step = int(torch.randint(1, 9, (), generator=generator))
        ids[row, :length] = FIRST + (start + step * torch.arange(length)) % (VOCAB - FIRST)
    return ids


@dataclass(frozen=True)
class Batch:
    """Keyword arguments of a model of transformers, and what its output should be."""

    inputs: dict[str, Any]
    targets: Tensor


def next_words(with_mask: bool = True) -> Batch:
    """For a causal language model: targets are the inputs moved by one, pads without a label."""
    ids = progressions(tuple(length + 1 for length in LENGTHS), seed=1)
    inputs: dict[str, Any] = {"input_ids": ids[:, :-1]}
    # the last word of a row is its label alone: seen as input it would be padding
    keep = torch.arange(ids.size(1) - 1) < torch.tensor(LENGTHS)[:, None]
    inputs["input_ids"] = inputs["input_ids"].masked_fill(~keep, PAD)
    if with_mask:
        inputs["attention_mask"] = keep.long()
    return Batch(inputs, ids[:, 1:].masked_fill(~keep, IGNORED))


def hidden_words() -> Batch:
    """For a masked language model: two words of a row hidden, labels there alone."""
    ids = progressions(LENGTHS, seed=2)
    hide = torch.zeros_like(ids, dtype=torch.bool)
    hide[:, 1] = True
    hide[[0, 2, 4], 4] = True
    inputs = {"input_ids": ids.masked_fill(hide, MASK), "attention_mask": (ids != PAD).long()}
    return Batch(inputs, ids.masked_fill(~hide, IGNORED))


def sentences() -> Batch:
    """For a classifier of sequences: the step of a row is its class."""
    ids = progressions(LENGTHS, seed=3)
    inputs = {"input_ids": ids, "attention_mask": (ids != PAD).long()}
    return Batch(inputs, torch.tensor([0, 3, 6, 1, 4]))


def pictures(size: int = 24) -> Batch:
    """For a classifier of images: five of three channels."""
    generator = torch.Generator().manual_seed(4)
    return Batch(
        {"pixel_values": torch.randn(5, 3, size, size, generator=generator)}, torch.tensor([0, 3, 6, 1, 4])
    )


def translations(start: int = BOS) -> Batch:
    """For an encoder-decoder: the decoder's input is `start` and the labels moved by one to the right."""
    source = progressions(LENGTHS, seed=5)
    labels = progressions(TARGET_LENGTHS, seed=6, to=max(TARGET_LENGTHS))
    labels[torch.arange(5), torch.tensor(TARGET_LENGTHS) - 1] = EOS
    begin = torch.full((5, 1), start)
    inputs = {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "decoder_input_ids": torch.cat([begin, labels[:, :-1]], dim=1),
    }
    return Batch(inputs, labels.masked_fill(labels == PAD, IGNORED))


def logits_of(output: Any) -> Tensor:
    """The logits of a structured output, a tuple, or the tensor itself."""
    if isinstance(output, Tensor):
        return output
    return output[0] if isinstance(output, tuple) else output.logits


def token_loss(output: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of every position that has a label."""
    logits = logits_of(output)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def padded_loss(output: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of every position that is not padding."""
    return F.cross_entropy(logits_of(output).flatten(0, 1), targets.flatten(), ignore_index=PAD)


def class_loss(output: Any, targets: Tensor) -> Tensor:
    """Cross-entropy of a row's class."""
    return F.cross_entropy(logits_of(output), targets)
