"""The language in which a foreign layout is written down: which of their tensors hold which of ours.

    same        one tensor, as it is
    transposed  rows and columns exchanged
    joined      several tensors, one below the other (W_Q, W_K, W_V; gate and value)
    skipping    the first rows are unused (position tables of RoBERTa and BART)
    reshaped    the same numbers in another shape

Each entry works in both directions, so that loading and saving follow one table. A layout is a file beside
this one with its LAYOUTS; nothing else lists them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

from headwise.checkpoint.foreign.options import Options
from headwise.config import ModelConfig


@dataclass(frozen=True)
class Entry:
    """One parameter of ours and the tensors of theirs that hold it.

    to_ours: their tensors, in the order of `theirs`, as ours; to_theirs: the way back.
    formula: for a parameter that their code computes; files may hold it or not.
    """

    ours: str
    theirs: tuple[str, ...]
    to_ours: Callable[[Sequence[Tensor]], Tensor]
    to_theirs: Callable[[Tensor], tuple[Tensor, ...]]
    formula: Callable[[], Tensor] | None = None


@dataclass(frozen=True)
class Layout:
    """How one kind of foreign checkpoint is read and written.

    name: what it is called, their model_type.
    heads: their classes and the model of ours that each becomes; saving takes the first of ours.
    read: their settings as ours; write: the way back, without what they cannot say. What comes back changed
        from write and read is what they cannot express.
    entries: the tensors of a model of this configuration and class.
    prefix: of the body's tensors where a head stands on it; a body saved alone goes without.
    ties: pairs of a name under which a file may hold a tensor a second time, and the usual one.
    ignored: patterns of tensors that nothing here needs.
    respelled: endings of names in old files, and what they are today.
    tokenizer: the class for which AutoTokenizer takes every tokenizer of this layout, whatever it is told.
    """

    name: str
    heads: Mapping[str, type[nn.Module]]
    read: Callable[[Options], ModelConfig]
    write: Callable[[ModelConfig], dict[str, object]]
    entries: Callable[[ModelConfig, type[nn.Module]], Iterable[Entry]]
    prefix: str = ""
    ties: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    respelled: Mapping[str, str] = field(default_factory=dict[str, str])
    tokenizer: str = ""


def same(ours: str, theirs: str) -> Entry:
    """One tensor, as it is."""
    return Entry(ours, (theirs,), lambda given: given[0], lambda own: (own,))


def transposed(ours: str, theirs: str) -> Entry:
    """Rows and columns exchanged: GPT-2 multiplies from the other side."""
    return Entry(ours, (theirs,), lambda given: given[0].T, lambda own: (own.T,))


def joined(ours: str, theirs: Sequence[str], rows: Sequence[int]) -> Entry:
    """Several tensors of so many rows, one below the other."""

    def parts(own: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.split(own, list(rows)))

    return Entry(ours, tuple(theirs), lambda given: torch.cat(tuple(given)), parts)


def skipping(rows: int, ours: str, theirs: str) -> Entry:
    """Theirs has so many rows in front that no text reaches; they are dropped, and written as zeros."""

    def padded(own: Tensor) -> tuple[Tensor, ...]:
        return (torch.cat((own.new_zeros(rows, *own.shape[1:]), own)),)

    return Entry(ours, (theirs,), lambda given: given[0][rows:], padded)


def reshaped(ours: str, theirs: str, our_shape: Sequence[int], their_shape: Sequence[int]) -> Entry:
    """The same numbers in another shape."""
    return Entry(
        ours,
        (theirs,),
        lambda given: given[0].reshape(tuple(our_shape)),
        lambda own: (own.reshape(tuple(their_shape)),),
    )


def linear(ours: str, theirs: str, *, bias: bool = True) -> list[Entry]:
    """A matrix and its bias."""
    return [same(f"{ours}.{part}", f"{theirs}.{part}") for part in ("weight", *(["bias"] if bias else []))]


def norm(ours: str, theirs: str, *, bias: bool = True) -> list[Entry]:
    """A norm's gain, which they call weight, and its bias where it has one."""
    gain = same(f"{ours}.gain", f"{theirs}.weight")
    return [gain, same(f"{ours}.bias", f"{theirs}.bias")] if bias else [gain]


def attention(config: ModelConfig, ours: str, theirs: Iterable[str]) -> list[Entry]:
    """An attention whose projections they keep apart, with the biases that the configuration has.

    theirs: what they call the projections to queries, keys and values, and the one of the output.
    """
    *projections, output = theirs
    width = config.num_heads * config.width_head
    rows = (width, *[config.key_value_heads * config.width_head] * 2)
    parts = ("weight", "bias") if config.attention_bias else ("weight",)
    return [
        *(
            joined(f"{ours}.query_key_value.{part}", [f"{name}.{part}" for name in projections], rows)
            for part in parts
        ),
        *linear(f"{ours}.output", output, bias=config.has_attention_output_bias),
    ]


@cache
def layouts() -> dict[str, Layout]:
    """Every layout by its name: those of the files beside this one."""
    package = __name__.rpartition(".")[0]
    modules = [name for _, name, _ in pkgutil.iter_modules([str(Path(__file__).parent)])]
    found = sorted(_found(f"{package}.{name}" for name in modules), key=lambda layout: layout.name)
    return {layout.name: layout for layout in found}


def _found(modules: Iterable[str]) -> Iterator[Layout]:
    for name in modules:
        yield from getattr(import_module(name), "LAYOUTS", ())
