"""Attention with known weights, for the tests of what shows it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.see.attention import Attention
from headwise.see.stacks import Layer, Stack, StackKind

SOURCE = ["zwei", "Hunde", "laufen", "im", "Schnee", ".", "<eos>", "<pad>"]
TARGET = ["two", "dogs", "run", "in", "the", "snow", ".", "<eos>"]
HOSTILE = "</script><img src=x onerror=alert(1)>"


def causal(length: int) -> Tensor:
    """True on and below the diagonal, [1, T, T]."""
    return torch.ones(1, length, length, dtype=torch.bool).tril()


def layer(number: int, keep: Tensor, heads: int, spread: float = 1.5) -> Layer:
    """Weights from random scores; head 2 looks at every key alike, head 3 at the first alone."""
    scores = spread * torch.randn(heads, *keep.shape[1:])
    if heads > 2:
        scores[1] = 0
        scores[2, :, 0] = 60
    frame = inspect.currentframe()
    line = frame.f_lineno + 1 if frame else 0
    weights = scores.masked_fill(~keep, -torch.inf).softmax(-1).nan_to_num()
    return Layer(f"blocks.{number}.attention", weights, keep, __file__, line)


def stack(
    kind: StackKind,
    queries: Sequence[str],
    keys: Sequence[str],
    keep: Tensor | None = None,
    layers: int = 2,
    heads: int = 4,
) -> Stack:
    """A stack of random layers; `keep` None masks nothing."""
    keep = torch.ones(1, len(queries), len(keys), dtype=torch.bool) if keep is None else keep
    made = tuple(layer(number, keep, heads) for number in range(layers))
    return Stack(kind, made, tuple(queries), tuple(keys), ("source: read", "target: written"))


def translation(source: Sequence[str] = SOURCE, target: Sequence[str] = TARGET) -> Attention:
    """Encoder with its last key masked, causal decoder, cross with the same key masked."""
    kept = torch.ones(1, 1, len(source), dtype=torch.bool)
    kept[..., -1] = False
    own = stack("encoder", source, source, kept.expand(1, len(source), len(source)))
    known = ["<bos>", *target[:-1]]
    decoder = stack("decoder", target, known, causal(len(target)))
    cross = stack("cross", target, source, kept.expand(1, len(target), len(source)))
    return Attention((own, decoder, cross), " ".join(source[:-2]), ("dropout was off",))


def deep(layers: int, heads: int, length: int) -> Attention:
    """One stack without a mask: the most weights for its size."""
    names = [f"word{place}" for place in range(length)]
    return Attention((stack("self", names, names, layers=layers, heads=heads),), "deep")
