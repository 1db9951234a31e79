"""Attention as one self-contained page: all heads as small maps, one enlarged, lines from word to word.

The script in `browser/` draws what is written here as data.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.doctor.page_style import CSS
from headwise.doctor.places import place, source, visible
from headwise.errors import ConfigError
from headwise.pages import data_block, document
from headwise.see.heads import Head, head_facts, mean_over_heads, mean_over_layers, rollout
from headwise.see.heads_told import MARKS, titles
from headwise.see.stacks import Layer, Stack, StackKind
from headwise.see.weight_codes import COARSE, FINE, Codes, pack_codes, pack_mask

if TYPE_CHECKING:
    from headwise.see.attention import Attention

# Cells of a whole page from which 8 bits a weight must do: the file would pass 16 MB.
MANY = 8_000_000
_SCRIPTS = ("data", "colours", "grid", "map", "lines", "page")


def to_html(attention: Attention) -> str:
    """The whole page; it loads nothing, and runs only its own script.

    Weights are shown as rounded by `weight_codes.FINE` (`COARSE` above `MANY` cells).
    Law: no text of a token, a title or a note is markup or code in it.
    """
    script = "\n".join(_asset(f"attention_{name}.js") for name in _SCRIPTS)
    style = CSS + _asset("attention.css")
    head = (
        '<main class="hw-report hw-attention">\n<header>\n<h1>headwise attention</h1>\n'
        f'<p class="target"><bdi>{escape(visible(attention.title))}</bdi></p>\n'
        + "".join(f'<p class="remark">Note: {escape(visible(note))}</p>\n' for note in attention.notes)
        + "</header>\n"
    )
    body = f"{head}{_asset('attention.html')}</main>\n{data_block('hw-data', _told(attention))}"
    return document(f"headwise attention: {visible(attention.title)}", style, body, script)


def fragment(attention: Attention) -> str:
    """The same page in a frame of its own, for a notebook's output: its script reaches nothing outside."""
    return (
        f'<iframe title="{escape(visible(attention.title))}" sandbox="allow-scripts" '
        'style="width: 100%; height: 54rem; max-height: 92vh; border: 0; resize: vertical" '
        f'srcdoc="{escape(to_html(attention))}"></iframe>\n'
    )


def _asset(name: str) -> str:
    return (files("headwise.see") / "browser" / name).read_text(encoding="utf-8")


def _told(attention: Attention) -> dict[str, Any]:
    cells = sum(
        len(stack.queries) * len(stack.keys) * sum(layer.weights.size(0) + 2 for layer in stack.layers)
        for stack in attention.stacks
    )
    codes = FINE if cells <= MANY else COARSE
    stacks = [_stack(stack, codes) for stack in attention.stacks]
    kinds: list[StackKind] = [stack.kind for stack in attention.stacks]
    names = titles(attention.stacks)
    for number, told in enumerate(stacks):
        kind = kinds[number]
        nth = kinds[: number + 1].count(kind)
        several = kinds.count(kind) > 1
        told["title"] = names[number]
        told["slug"] = kind + (f"-{nth}" if several else "")
    return {"labels": codes.labels, "precision": codes.precision, "marks": MARKS, "stacks": stacks}


def _stack(stack: Stack, codes: Codes) -> dict[str, Any]:
    """What the script needs of a stack.

    The maps follow one another: of each layer its heads, their mean and, where it can be had, the rollout up
    to it; last the mean of all. maskOf: for each, which of `masks` is its own, -1 where nothing is masked.
    """
    try:
        reached: Sequence[Tensor] = rollout(stack)
    except ConfigError:  # the keys are other tokens
        reached = ()
    maps, keeps = _maps(stack, reached)
    coded = torch.stack([codes.encode(weights).short() for weights in maps])  # one by one: they may be many
    high, low = pack_codes(coded, narrow=codes is COARSE)
    masks: dict[str, int] = {}
    mask_of = [-1 if keep.all() else masks.setdefault(pack_mask(keep), len(masks)) for keep in keeps]
    return {
        "axes": [visible(axis) for axis in stack.axes],
        "keys": [token_name(name) for name in stack.keys],
        "queries": [token_name(name) for name in stack.queries],
        "layers": [_layer(layer, stack) for layer in stack.layers],
        "hasRollout": bool(reached),
        "high": high,
        "low": low,
        "masks": list(masks),
        "maskOf": mask_of,
    }


def _maps(
    stack: Stack, reached: Sequence[Float[Tensor, "T T"]]
) -> tuple[list[Float[Tensor, "Tq Tk"]], list[Bool[Tensor, "Tq Tk"]]]:
    """All maps of a stack in the order of `_stack`, each with where it may be anything but zero.

    A mean may where one of its heads may; a rollout along every path through the layers so far.
    """
    maps: list[Tensor] = []
    keeps: list[Tensor] = []
    size = (len(stack.queries), len(stack.keys))
    anywhere = torch.zeros(size, dtype=torch.bool)
    paths = torch.eye(*size)
    for number, layer in enumerate(stack.layers):
        heads = layer.weights.size(0)
        keep = layer.keep.cpu()
        some = keep.any(0)
        maps += [*layer.weights.cpu(), mean_over_heads(layer).cpu()]
        keeps += [*keep.expand(heads, *size), some]
        anywhere = anywhere | some
        if reached:
            paths = ((some | torch.eye(*size).bool()).float() @ paths).clamp(max=1)
            maps.append(reached[number].cpu())
            keeps.append(paths > 0)
    return [*maps, mean_over_layers(stack).cpu()], [*keeps, anywhere]


def _layer(layer: Layer, stack: Stack) -> dict[str, Any]:
    return {
        "name": visible(layer.name),
        "place": place(layer.file, layer.line) if layer.file else "",
        "code": source(layer.file, layer.line) if layer.file else "",
        "heads": [_head(head) for head in head_facts(layer, stack.keys, stack.kind)],
    }


def _head(head: Head) -> dict[str, Any]:
    is_told = math.isfinite(head.entropy)
    return {
        "entropy": round(head.entropy, 3) if is_told else None,
        "share": math.floor(1000 * head.share + 1e-3) / 1000 if is_told else None,
        "state": head.state,
        "note": visible(head.note),
    }


def token_name(name: str) -> str:
    """A token's name in which nothing is invisible: an outer space is drawn, an empty name is two quotes."""
    text = visible(name)
    if not text:
        return '""'
    if all(unicodedata.category(letter) in ("Cf", "Mn", "Zs") for letter in text.strip(" ")):
        text = "".join(letter if letter == " " else f"U+{ord(letter):04X}" for letter in text)
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" ")) if inner else 0
    after = len(text) - before - len(inner)
    return "\u2423" * before + inner + "\u2423" * after
