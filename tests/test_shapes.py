"""Every shape comment in headwise is true, and every axis in it stands in the legend."""

from __future__ import annotations

import ast
import importlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import headwise
from headwise.config import ModelConfig
from headwise.shapes import LEGEND
from shape_comments import check_shape_comments, find_shape_comments

PACKAGE = Path(headwise.__file__).parent

# Every axis its own size, so that a swapped axis cannot hide; 1 is left to axes of size 1.
SIZES = {"B": 2, "H": 3, "Dh": 4, "Tq": 5, "Tk": 7, "Ts": 8, "Tt": 9, "BK": 10, "T": 11, "D": 12}
SIZES |= {"N": 14, "F": 20, "V": 23, "K": 5}

Walk = Callable[[], object]
WALKS: dict[str, tuple[str, Walk]] = {}


def walk(module: str, axes: str) -> Callable[[Walk], Walk]:
    """Register how to run a module's commented lines, and which axes then have the sizes above.

    An axis left out has a size of its own in each call.
    """

    def register(function: Walk) -> Walk:
        WALKS[module] = (axes, function)
        return function

    return register


def config() -> ModelConfig:
    return ModelConfig(
        vocab_size=SIZES["V"],
        d_model=SIZES["D"],
        num_heads=SIZES["H"],
        d_ff=SIZES["F"],
        num_encoder_layers=1,
        num_decoder_layers=1,
    )


def ids(rows: str, length: str) -> torch.Tensor:
    return torch.randint(1, SIZES["V"], (SIZES[rows], SIZES[length]))


def vectors(*axes: str) -> torch.Tensor:
    return torch.randn(*(SIZES[axis] for axis in axes))


@walk("model.attention", "B H Dh Tq Tk D")  # T is Tq for queries and Tk for the memory
def walk_attention() -> None:
    from headwise.model.attention import MultiHeadAttention, attend_with_weights
    from headwise.model.cache import KeyValues
    from headwise.model.masks import causal_keep

    q, k = vectors("B", "H", "Tq", "Dh"), vectors("B", "H", "Tk", "Dh")
    keep = causal_keep(SIZES["Tq"], SIZES["Tk"])
    keep[..., 0, :] = False
    attend_with_weights(q, k, k)
    attend_with_weights(q, k, k, keep)
    attention = MultiHeadAttention(config())
    cache = KeyValues()  # two earlier positions: five queries then meet seven keys
    cache.append(k[:, :, :2], k[:, :, :2])
    attention(vectors("B", "Tq", "D"), causal_keep(SIZES["Tq"], SIZES["Tk"]), cache=cache, maps=[])


@walk("model.attention cross", "B H Dh Tk D BK")  # K hypotheses: Tq in `cross`, K times as many in `_mix`
def walk_cross_attention() -> None:
    from headwise.model.attention import MultiHeadAttention

    attention = MultiHeadAttention(config())
    attention.cross(vectors("BK", "Tq", "D"), attention.project_memory(vectors("B", "Tk", "D")))


@walk("model.cache", "B H Dh Ts")  # N sentences are chosen
def walk_cache() -> None:
    from headwise.model.cache import DecoderCache

    keys = vectors("B", "H", "Ts", "Dh")
    keep = torch.ones(SIZES["B"], 1, 1, SIZES["Ts"], dtype=torch.bool)
    cache = DecoderCache([(keys, keys)], keep)
    cache.self_attention[0].append(keys, keys)
    cache.select_sentences(torch.tensor([1, 0, 1]))


@walk("model.masks", "B T Tq Tk")
def walk_masks() -> None:
    from headwise.model.masks import causal_keep, padding_keep

    padding_keep(ids("B", "T"), 0)
    causal_keep(SIZES["Tq"], SIZES["Tk"])


@walk("model.positions", "T D")
def walk_positions() -> None:
    from headwise.model.positions import sinusoidal_table

    sinusoidal_table(SIZES["T"], SIZES["D"])


@walk("model.embed", "B T D")
def walk_embed() -> None:
    from headwise.model.embed import TokenEmbedding

    TokenEmbedding(config())(ids("B", "T"))


@walk("model.feedforward", "B T D F")
def walk_feedforward() -> None:
    from headwise.model.feedforward import FeedForward

    FeedForward(config())(vectors("B", "T", "D"))


@walk("model.encoder_decoder", "B BK D Ts Tt V")
def walk_encoder_decoder() -> None:
    from headwise.model.encoder_decoder import EncoderDecoder

    model = EncoderDecoder(config())
    model(ids("B", "Ts"), ids("B", "Tt"))
    model.step(ids("BK", "Tt"), model.start(ids("B", "Ts")))


@walk("see.positions", "T D")
def walk_picture_of_positions() -> None:
    pytest.importorskip("matplotlib")
    from headwise.see.positions import draw_positions

    with tempfile.TemporaryDirectory() as folder:
        draw_positions(SIZES["T"], SIZES["D"], Path(folder) / "positions.png")


@walk("see.reading", "")
def walk_reading() -> None:
    from headwise.data.tokenizer import Tokenizer
    from headwise.model.encoder_decoder import EncoderDecoder
    from headwise.see.reading import read_sentence

    tokenizer = Tokenizer.train(["two dogs play", "zwei Hunde spielen"], 64)
    shape = ModelConfig(d_model=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
    model = EncoderDecoder(shape.with_vocabulary(tokenizer.vocab_size, tokenizer.pad_id)).eval()
    read_sentence(model, tokenizer, "two dogs")


@walk("train.loss", "N D V")
def walk_loss() -> None:
    from headwise.train.loss import cross_entropy

    weight = vectors("V", "D").requires_grad_()
    cross_entropy(vectors("N", "D").requires_grad_(), weight, torch.arange(SIZES["N"]), 0.1)


def path_of(name: str) -> Path:
    return PACKAGE / (name.replace(".", "/") + ".py")


def with_comments() -> list[str]:
    """Modules that seem to have shape comments; what exactly they have is found inside the test."""
    seem = [p for p in sorted(PACKAGE.rglob("*.py")) if re.search(r"\S +# \[", p.read_text(encoding="utf-8"))]
    return [".".join(p.relative_to(PACKAGE).with_suffix("").parts) for p in seem]


@pytest.mark.parametrize("name", with_comments())
def test_shape_comments_are_true(name: str) -> None:
    assert find_shape_comments(path_of(name))
    walks = [WALKS[key] for key in WALKS if key.split()[0] == name]
    assert walks, f"{name} has shape comments and no walk here that runs its lines"
    module = importlib.import_module(f"headwise.{name}")
    missed: list[set[str]] = []
    for axes, function in walks:
        with check_shape_comments(module, {axis: SIZES[axis] for axis in axes.split()}) as seen:
            function()
        missed.append(set(seen.missed))
    assert set.intersection(*missed) == set(), "no walk runs these lines"


def test_no_walk_is_left_over() -> None:
    walked = {key.split()[0] for key in WALKS}
    assert walked <= set(with_comments())
    assert "model.attention" in walked


def test_sizes_differ() -> None:
    named = [size for axis, size in SIZES.items() if axis != "K"]  # K only multiplies B
    assert len(set(named)) == len(named) and 1 not in named


def axes_in(path: Path) -> set[str]:
    """Axis names in a file's shape comments and jaxtyping annotations."""
    found: set[str] = set()
    for comment in find_shape_comments(path):
        for axis in (axis for axes in comment.shapes for axis in axes):
            found |= set(re.findall(r"[A-Za-z]\w*", axis))
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Tuple)
            and len(node.slice.elts) == 2
        ):
            shape = node.slice.elts[1]
            if getattr(node.value, "id", "") in {"Float", "Int", "Bool", "Shaped"} and isinstance(
                shape, ast.Constant
            ):
                found |= set(re.findall(r"[A-Za-z]\w*", str(shape.value)))
    return found


def in_legend(axis: str) -> bool:
    """In the legend, two of its letters for their product (BK = B*K rows), or a word that says itself."""
    product = any(axis[:cut] in LEGEND and axis[cut:] in LEGEND for cut in range(1, len(axis)))
    return axis in LEGEND or product or bool(re.fullmatch(r"[a-z_]{3,}", axis))


def test_every_axis_stands_in_the_legend() -> None:
    strange = {
        str(p.relative_to(PACKAGE)): {a for a in axes_in(p) if not in_legend(a)}
        for p in PACKAGE.rglob("*.py")
    }
    assert {path: axes for path, axes in strange.items() if axes} == {}
    assert {"B", "Dh", "Tq", "D"} <= axes_in(PACKAGE / "model/attention.py")
    assert not in_legend("S") and not in_legend("BS") and in_legend("BK")


def test_the_legend_in_the_docstring_is_the_table() -> None:
    from headwise import shapes

    drawn = dict(re.findall(r"(?:^|  +)([A-Z][a-z]?) {1,3}(\w+)", shapes.__doc__ or "", re.MULTILINE))
    assert set(drawn) == set(LEGEND)
    for axis, first_word in drawn.items():
        assert LEGEND[axis].startswith(first_word), axis
