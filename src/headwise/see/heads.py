"""How spread each head's weights are, which heads have collapsed, and all heads and layers in one map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.doctor.batch import numbers
from headwise.errors import ConfigError
from headwise.see.stacks import Layer, Stack, StackKind

# The doctor's HW707 calls a fresh model collapsed where the mean of the largest weight is above 0.98, or
# where the scores do not spread at all: what it finds is marked here as well.
SHARP = 0.95  # of the weight on one key, on average over the queries
FLAT = 0.99  # of the most possible entropy: over ten keys, weights that differ by a fifth
FEWEST = 3  # keys that a query must be free to look at before it can be called collapsed
MOSTLY = 0.5  # of the weight, from which a pattern is worth a word

State = Literal["", "uniform", "one-hot", "dead"]


@dataclass(frozen=True)
class Head:
    """How one head spreads its weights, on average over the queries that may look at two keys or more.

    entropy: nats. share: of log(keys it may look at), 0 (one key) to 1 (all alike). Both are 0 where no query
    has a choice, and NaN where the weights are.
    state: "uniform", all keys alike; "one-hot", each query one key; "dead", all queries the same one key;
    else "". In an untrained model each is a fault, or near one; of a trained head "one-hot" may be the job.
    note: the same in words, with the pattern if there is one.
    """

    entropy: float
    share: float
    state: State
    note: str


def head_facts(layer: Layer, keys: Sequence[str] = (), kind: StackKind = "self") -> tuple[Head, ...]:
    """Judge every head of a layer; `keys` are the names of the Tk tokens, for the notes.

    kind: of its stack; the queries of "cross" are other tokens than its keys, however many they are.
    Only the keys that the mask leaves free count; padding does not count as a query where the mask hides it
    from all (of a self-attention). Law: permuting heads permutes the result.
    """
    is_self = kind != "cross" and layer.weights.size(1) == layer.weights.size(2)
    keep = layer.keep.expand(layer.weights.shape)
    return tuple(
        _judged(weights, free, keys, is_self) for weights, free in zip(layer.weights, keep, strict=True)
    )


def mean_over_heads(layer: Layer) -> Float[Tensor, "Tq Tk"]:
    """The mean of a layer's heads."""
    return layer.weights.mean(0)


def mean_over_layers(stack: Stack) -> Float[Tensor, "Tq Tk"]:
    """The mean of a stack's layers, each the mean of its heads."""
    return torch.stack([mean_over_heads(layer) for layer in stack.layers]).mean(0)


def rollout(stack: Stack) -> list[Float[Tensor, "T T"]]:
    """How much of each token of the input reaches each position of a layer, for every layer.

    R(l) = (0.5 W(l) + 0.5 I) R(l-1), rows summing to 1     Quantifying Attention Flow in Transformers, 3

    W is the mean over heads; I stands for the residual connection. What a decoder takes from its encoder is
    left out. Law: rows sum to 1; what no layer may look at reaches nothing.
    Errors: ConfigError for a stack that reads other tokens than its own.
    """
    if stack.kind == "cross" or len(stack.queries) != len(stack.keys):
        raise ConfigError(
            f"rollout multiplies layers of self-attention: got {stack.kind} attention of "
            f"{len(stack.queries)} queries over {len(stack.keys)} keys; take the encoder's or decoder's own"
        )
    reached: list[Tensor] = []
    for layer in stack.layers:
        one = torch.eye(len(stack.keys), dtype=layer.weights.dtype)
        mixed = 0.5 * mean_over_heads(layer) + 0.5 * one
        mixed = mixed / mixed.sum(-1, keepdim=True)
        reached.append(mixed @ reached[-1] if reached else mixed)
    return reached


def _judged(
    weights: Float[Tensor, "Tq Tk"], keep: Bool[Tensor, "Tq Tk"], keys: Sequence[str], is_self: bool
) -> Head:
    rows = _counted(keep, 2, is_self)
    if not rows:
        return Head(0.0, 0.0, "", "no query has a choice: each may look at one token at most")
    if not bool(torch.isfinite(weights[rows][keep[rows]]).all()):
        return Head(float("nan"), float("nan"), "", "its weights are not numbers (NaN)")
    held = weights.double() * keep
    total = held.sum(-1, keepdim=True)  # below 1 where a sink beside the keys takes a part
    spread = held / total.clamp(min=1e-30)
    each = -(spread * spread.clamp(min=1e-300).log())[rows].sum(-1)
    share = float((each / keep[rows].sum(-1).log()).mean().clamp(0, 1))
    state, note = _state(spread, keep, float(total[rows].mean()), share, keys, is_self)
    return Head(float(each.mean()), share, state, note)


def _counted(keep: Bool[Tensor, "Tq Tk"], fewest: int, is_self: bool) -> list[int]:
    """The queries that may look at so many keys, padding of a self-attention left out."""
    counted = keep.sum(-1) >= fewest
    if is_self:
        counted = counted & keep.any(0)
    return numbers(counted.nonzero()[:, 0])


def _state(
    spread: Float[Tensor, "Tq Tk"],
    keep: Bool[Tensor, "Tq Tk"],
    total: float,
    share: float,
    keys: Sequence[str],
    is_self: bool,
) -> tuple[State, str]:
    rows = _counted(keep, FEWEST, is_self)
    if not rows:
        return "", ""
    if total < 1 - SHARP:
        return "dead", f"looks at nothing: what takes {_percent(1 - total)} of its weight is no token"
    if share >= FLAT:
        return (
            "uniform",
            f"looks at every allowed token alike: entropy {_percent(share)} of the most possible",
        )
    key = int(spread[rows].mean(0).argmax())
    named = f"token {key + 1}" + (f" ({keys[key]})" if key < len(keys) else "")
    on_key = float(spread[rows, key].mean())
    if on_key >= SHARP and len(rows) > 1:
        return "dead", f"every query looks at the same {named}: {_percent(on_key)} of its weight"
    along, words = max([(on_key, named), *(_along(spread, keep, rows) if is_self else ())])
    top = float(spread[rows].amax(-1).mean())
    if top >= SHARP:
        always = f", always {words}" if along >= SHARP else ""
        return "one-hot", f"each query looks at one token only{always}: {_percent(top)} of its weight"
    return "", f"mostly {words}: {_percent(along)} of the weight" if along >= MOSTLY else ""


def _along(
    spread: Float[Tensor, "Tq Tk"], keep: Bool[Tensor, "Tq Tk"], rows: Sequence[int]
) -> Iterator[tuple[float, str]]:
    """The weight on a query's own place and on those beside it, on average over the queries that have it."""
    for offset, words in ((0, "its own place"), (-1, "the place before"), (1, "the place after")):
        beside = keep.diagonal(offset)  # of query q with the key q + offset
        free = numbers(beside)
        start = max(-offset, 0)
        there = [q for q in rows if 0 <= q - start < len(free) and free[q - start]]
        if len(there) > 1 and len(there) >= len(rows) - 1:
            yield float(spread[there, [q + offset for q in there]].mean()), words


def _percent(part: float) -> str:
    return f"{int(part * 1000 + 1e-4) / 10:.1f} %"  # rounded down: 100.0 % means all
