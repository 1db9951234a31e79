"""Who looked where in one pass over one row of a batch: what the attention page and its pictures draw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor

StackKind = Literal["encoder", "decoder", "cross", "self"]


@dataclass(frozen=True, eq=False)
class Layer:
    """One attention of a model, all its heads.

    weights: what meets the values, without dropout; what a softmax gave, and nothing changed since, sums to 1
    along a row, or to 0 where a query may look nowhere.
    keep: True where the mask in force lets a query look; elsewhere the weight is no choice of the model's.
    name: the path of the module it runs in; file, line: the source line of its softmax ("" and 0 if unknown).
    """

    name: str
    weights: Float[Tensor, "H Tq Tk"]
    keep: Bool[Tensor, "#H Tq Tk"]
    file: str = ""
    line: int = 0


@dataclass(frozen=True, eq=False)
class Stack:
    """The attentions of one kind over the same tokens, in the order in which they ran.

    queries, keys: names of the Tq tokens that look and of the Tk tokens that are looked at, as plain text.
    axes: what the keys are, what the queries are ("source: read", "target: written").
    kind: encoder, decoder (each to itself) or cross; self for a model with one stack.
    """

    kind: StackKind
    layers: tuple[Layer, ...]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    axes: tuple[str, str]
