"""Every shape comment in headwise is true, and every axis in it stands in the legend."""

from __future__ import annotations

import ast
import importlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import headwise
from headwise.config import ModelConfig, PatchConfig
from headwise.shapes import LEGEND
from shape_comments import check_shape_comments, find_shape_comments
from tiny_run import OTHER_KINDS, tiny_kind, with_model

PACKAGE = Path(headwise.__file__).parent

# Every axis its own size, so that a swapped axis cannot hide; 1 is left to axes of size 1.
SIZES = {"B": 2, "Hk": 3, "H": 6, "Dh": 4, "Tq": 5, "Tk": 7, "Ts": 8, "Tt": 9, "BK": 10, "T": 11, "D": 18}
SIZES |= {"C": 13, "N": 14, "F": 20, "V": 23, "K": 5}

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


def config(**changes: object) -> ModelConfig:
    sizes: dict[str, object] = {
        "vocab_size": SIZES["V"],
        "d_model": SIZES["D"],
        "num_heads": SIZES["H"],
        "num_kv_heads": SIZES["Hk"],
        "d_head": SIZES["Dh"],
        "d_ff": SIZES["F"],
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "num_classes": SIZES["C"],
    }
    return ModelConfig(**{**sizes, **changes})  # type: ignore[arg-type]


def ids(rows: str, length: str) -> torch.Tensor:
    return torch.randint(1, SIZES["V"], (SIZES[rows], SIZES[length]))


def vectors(*axes: str) -> torch.Tensor:
    return torch.randn(*(SIZES[axis] for axis in axes))


@walk("model.attention", "B H Hk Dh Tq Tk D")  # T is Tq for queries and Tk for the memory
def walk_attention() -> None:
    from headwise.model.attention import MultiHeadAttention, attend, attend_with_weights
    from headwise.model.cache import KeyValues
    from headwise.model.masks import causal_keep

    q, k = vectors("B", "H", "Tq", "Dh"), vectors("B", "Hk", "Tk", "Dh")
    keep = causal_keep(SIZES["Tq"], SIZES["Tk"])
    keep[..., 0, :] = False
    attend_with_weights(q, k, k)
    attend_with_weights(q, k, k, keep)
    attention = MultiHeadAttention(config())
    cache = KeyValues()  # two earlier positions: five queries then meet seven keys
    cache.append(k[:, :, :2], k[:, :, :2])
    attention(vectors("B", "Tq", "D"), causal_keep(SIZES["Tq"], SIZES["Tk"]), cache=cache, maps=[])
    double = q.bfloat16(), k.bfloat16().repeat(1, 1, 40, 1)  # so many keys take the fused kernel
    attend(double[0], double[1], double[1], keep.repeat(1, 1, 1, 40), bias=torch.zeros(1, 1, 1, 280))


@walk("model.attention cross", "B H Hk Dh Tk D BK")  # K hypotheses: Tq in `cross`, K times in `_mix`
def walk_cross_attention() -> None:
    from headwise.model.attention import MultiHeadAttention

    attention = MultiHeadAttention(config())
    attention.cross(vectors("BK", "Tq", "D"), attention.project_memory(vectors("B", "Tk", "D")))


@walk("model.rotary", "B T Dh")  # heads of any number, pairs of a number of their own
def walk_rotary() -> None:
    from headwise.config import RotaryConfig
    from headwise.model.rotary import Rotary, turn

    places = torch.arange(SIZES["T"]).expand(SIZES["B"], -1)
    rotary = Rotary(config(positions="rotary", rotary=RotaryConfig(scaling="yarn", share=0.5)))
    turn(vectors("B", "H", "T", "Dh"), rotary(places, torch.float32))


@walk("model.alibi", "H Tq Tk")
def walk_alibi() -> None:
    from headwise.model.alibi import Alibi

    Alibi(config(positions="alibi"))(torch.zeros(SIZES["Tq"], SIZES["Tk"], dtype=torch.long), torch.float32)


@walk("model.relative", "H Tq Tk")
def walk_relative() -> None:
    from headwise.model.relative import RelativeBias

    bias = RelativeBias(config(positions="relative"), is_causal=True)
    bias(torch.zeros(SIZES["Tq"], SIZES["Tk"], dtype=torch.long), torch.float32)


@walk("model.cache", "B H Dh Ts T Tk")  # N sentences are chosen
def walk_cache() -> None:
    from headwise.model.cache import DecoderCache, KeyValues, TextCache

    keys = vectors("B", "H", "Ts", "Dh")
    keep = torch.ones(SIZES["B"], 1, 1, SIZES["Ts"], dtype=torch.bool)
    cache = DecoderCache([(keys, keys)], keep)
    cache.self_attention[0].append(keys, keys)
    cache.select_sentences(torch.tensor([1, 0, 1]))
    text = TextCache([KeyValues()])
    text.extend(SIZES["B"], SIZES["Tk"], torch.ones(SIZES["B"], SIZES["Tk"], dtype=torch.bool))


@walk("model.masks", "B T Tq Tk")
def walk_masks() -> None:
    from headwise.model.masks import causal_keep, padding_keep, window_keep

    padding_keep(ids("B", "T"), 0)
    causal_keep(SIZES["Tq"], SIZES["Tk"])
    window_keep(SIZES["Tq"], SIZES["Tk"], 2)


@walk("model.masks prefix", "B T")  # Tq and Tk are T
def walk_prefix() -> None:
    from headwise.model.masks import prefix_keep

    prefix_keep(torch.tensor([3, 0]), SIZES["T"])


@walk("model.positions", "B T D")
def walk_positions() -> None:
    from headwise.model.positions import places_of, sinusoidal_table

    sinusoidal_table(SIZES["T"], SIZES["D"])
    places_of(SIZES["T"], None)
    places_of(SIZES["T"], torch.ones(SIZES["B"], SIZES["T"], dtype=torch.bool))


@walk("model.embed", "B T D")
def walk_embed() -> None:
    from headwise.model.embed import InputEmbedding

    InputEmbedding(config(num_segments=2))(ids("B", "T"))


@walk("model.embed images", "B D")  # T is one more than there are patches
def walk_patches() -> None:
    from headwise.model.embed import PatchEmbedding

    shape = config(patches=PatchConfig(height=6, width=8, size=2, channels=3))
    PatchEmbedding(shape)(torch.randn(SIZES["B"], 3, 6, 8))


@walk("model.feedforward", "B T D F")
def walk_feedforward() -> None:
    from headwise.model.feedforward import FeedForward, GatedFeedForward

    FeedForward(config())(vectors("B", "T", "D"))
    GatedFeedForward(config(gated=True))(vectors("B", "T", "D"))


@walk("model.block", "B T D")
def walk_block() -> None:
    from headwise.model.block import ParallelBlock

    ParallelBlock(config(norm="pre", parallel_blocks=True))(vectors("B", "T", "D"))


@walk("model.encoder", "B T D")
def walk_encoder() -> None:
    from headwise.model.encoder import Encoder

    Encoder(config())(vectors("B", "T", "D"))


@walk("model.decoder", "BK Tt D")
def walk_decoder() -> None:
    from headwise.model.decoder import Decoder

    decoder = Decoder(config())
    decoder(vectors("BK", "Tt", "D"), decoder.project_memory(vectors("B", "Ts", "D")))


@walk("model.encoder_decoder", "B D Ts Tt V")  # B rows are embedded where a step has BK
def walk_encoder_decoder() -> None:
    from headwise.model.encoder_decoder import EncoderDecoder

    EncoderDecoder(config(scale_output=True))(ids("B", "Ts"), ids("B", "Tt"))


@walk("model.encoder_decoder step", "B BK D Ts Tt V")
def walk_step_of_encoder_decoder() -> None:
    from headwise.model.encoder_decoder import EncoderDecoder

    model = EncoderDecoder(config())
    model.step(ids("BK", "Tt"), model.start(ids("B", "Ts")))


@walk("model.language_model", "B T D V")
def walk_language_model() -> None:
    from headwise.model.language_model import LanguageModel

    model = LanguageModel(config(num_encoder_layers=0, scale_output=True))
    model(ids("B", "T"), prefix=torch.tensor([3, 0]))
    cache, keep = model.start(), torch.ones(SIZES["B"], SIZES["T"], dtype=torch.bool)
    model.step(ids("B", "T"), cache)
    model.step(ids("B", "T"), cache, keep)


@walk("model.text_encoder", "B T D V C")
def walk_text_encoder() -> None:
    from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder

    given = ids("B", "T")
    TextEncoder(config(num_decoder_layers=0)).sentence_vectors(given)
    MaskedLanguageModel(config(num_decoder_layers=0))(given)
    for changes in ({"pooling": "mean"}, {"pad_id": None}, {}):
        TextClassifier(config(num_decoder_layers=0, **changes))(given)


@walk("model.vision", "B D C")
def walk_vision() -> None:
    from headwise.model.vision import ImageClassifier

    shape = config(num_decoder_layers=0, patches=PatchConfig(height=6, width=8, size=2, channels=3))
    ImageClassifier(shape)(torch.randn(SIZES["B"], 3, 6, 8))


@walk("see.masks", "B H Tq Tk")
def walk_picture_of_a_mask() -> None:
    pytest.importorskip("matplotlib")
    from headwise.see.masks import draw_mask

    draw_mask(vectors("B", "H", "Tq", "Tk") > 0)


@walk("see.order", "T H")
def walk_order() -> None:
    from headwise.model.language_model import LanguageModel
    from headwise.see.order import order_of

    for positions in ("rotary", "alibi"):
        order_of(config(positions=positions), SIZES["T"])
    order_of(LanguageModel(config(num_encoder_layers=0, positions="relative")), SIZES["T"])


@walk("see.watch.measure", "B H Tq Tk")
def walk_measures_of_heads() -> None:
    from headwise.see.watch.measure import head_numbers

    weights = vectors("B", "H", "Tq", "Tk").softmax(-1)
    head_numbers(weights, torch.ones_like(weights, dtype=torch.bool))


@walk("see.similarity", "T D")
def walk_similarity() -> None:
    from headwise.see.order import Order
    from headwise.see.similarity import similarity_by_distance

    similarity_by_distance(Order("table", table=vectors("T", "D")))


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


@walk("decode.sample", "B V")  # N rows are left when one has ended
def walk_sample() -> None:
    from headwise.decode.sample import next_tokens
    from headwise.decode.sampling import Sampling

    everything = Sampling(top_k=3, top_p=0.9, min_p=0.1, repetition_penalty=2.0)
    next_tokens(vectors("B", "V"), everything, seen=torch.zeros(SIZES["B"], SIZES["V"], dtype=torch.bool))


@walk("decode.sample whole", "V")
def walk_generate() -> None:
    from headwise.decode.sample import generate
    from headwise.model.language_model import LanguageModel

    model = LanguageModel(config(num_encoder_layers=0))
    going_on = iter([True, False, True])
    generate(model, [[1, 2], [3]], 4, on_tokens=lambda news: [next(going_on, True) for _ in news])


@walk("see.confusion", "C")
def walk_confusion() -> None:
    pytest.importorskip("matplotlib")
    from headwise.see.confusion import draw_confusion

    with tempfile.TemporaryDirectory() as folder:
        counts = np.eye(SIZES["C"], dtype=np.int64)
        draw_confusion(counts, [str(n) for n in range(SIZES["C"])], Path(folder) / "a.png", "title")


@walk("checkpoint.foreign.marian", "T D")
def walk_marian() -> None:
    from headwise.checkpoint.foreign.marian import halved_sinusoids

    halved_sinusoids(SIZES["T"], SIZES["D"])


def walk_task(kind: str) -> Walk:
    """A batch, a loss and a validation of a small task; every call has sizes of its own."""

    def run() -> None:
        from headwise.checkpoint.run import RunFiles
        from headwise.train.tasks import make_task

        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "run"
            folder.mkdir()
            small = with_model(tiny_kind(kind, folder), output_bias=True, scale_output=True)
            task = make_task(small, RunFiles(folder), lambda _: None)
            task.make_model()
            batch = task.batch(task.epoch(0)[0][:7])
            task.loss(batch, 1.0)
            task.validate()

    return run


for _kind in OTHER_KINDS:
    walk(f"train.{_kind}", "")(walk_task(_kind))


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
