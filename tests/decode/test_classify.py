"""A class depends on its text alone; windows change nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headwise.config import ModelConfig, PatchConfig
from headwise.data.text_tokenizer import CLASS, PADDING, TextTokenizer
from headwise.decode.classify import PictureNamer, TextNamer, text_ids
from headwise.errors import DataError
from headwise.model.text_encoder import TextClassifier
from headwise.model.vision import ImageClassifier

TOKENIZER = TextTokenizer.train(["abcd "], "characters", 0, (PADDING, CLASS))
SIZES = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 0, "num_classes": 3}


def namer() -> TextNamer:
    torch.manual_seed(2)
    config = ModelConfig(vocab_size=TOKENIZER.vocab_size, pad_id=TOKENIZER.pad_id, max_length=8, **SIZES)  # type: ignore[arg-type]
    return TextNamer(TextClassifier(config), TOKENIZER, 8)


@pytest.fixture(scope="module")
def alone() -> TextNamer:
    return namer()


@given(st.lists(st.text("abcd ", max_size=12), max_size=6), st.integers(1, 7))
@settings(max_examples=40)
def test_a_text_is_named_as_if_alone_in_order_and_cut_ones_are_counted(
    alone: TextNamer, texts: list[str], window: int
) -> None:
    made = namer()
    found = list(made.stream(texts, window))
    assert made.cut == sum(len(text) > 7 and bool(text.strip()) for text in texts)
    assert len(found) == len(texts)
    for text, one in zip(texts, found, strict=True):
        other = next(iter(alone.stream([text])))
        assert (one is None) == (other is None) == (not text.strip())
        if one is not None and other is not None:
            assert one.place == other.place and one.probability == pytest.approx(other.probability, abs=1e-6)


def test_no_more_than_a_window_is_read_ahead() -> None:
    taken: list[str] = []

    def texts() -> object:
        for text in "abcd" * 3:
            taken.append(text)
            yield text

    stream = namer().stream(texts(), 2)  # type: ignore[arg-type]
    next(stream)
    assert len(taken) == 2


def test_ids_begin_with_the_class_mark_where_there_is_one() -> None:
    plain = TextTokenizer.train(["abcd "], "characters", 0, (PADDING,))
    assert text_ids(plain, ["ab"], 8) == (plain.encode(["ab"]), 0)
    rows, cut = text_ids(TOKENIZER, ["ab", "abcd"], 4)
    assert [len(row) for row in rows] == [3, 4] and cut == 1
    assert all(row[0] == TOKENIZER.begin_id for row in rows)


def test_a_picture_is_named_as_if_alone(tmp_path: Path) -> None:
    torch.manual_seed(2)
    patches = PatchConfig(height=4, width=4, size=2, channels=1)
    model = ImageClassifier(ModelConfig(patches=patches, max_length=8, **SIZES))  # type: ignore[arg-type]
    names = [str(tmp_path / f"{number}.png") for number in range(5)]
    for number, name in enumerate(names):
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (4, 4), dtype=np.uint8)).save(name)
    alone = [next(iter(PictureNamer(model).stream([name]))) for name in names]
    for window in (1, 2, 9):
        for one, other in zip(PictureNamer(model).stream(names, window), alone, strict=True):
            assert one.place == other.place
            assert one.probability == pytest.approx(other.probability, abs=1e-6)
    assert model.training and len({one.probability for one in alone}) == 5
    with pytest.raises(DataError, match="every line must name a picture"):
        list(PictureNamer(model).stream(["", names[0]]))


def test_a_suspended_stream_leaves_gradients_on(tmp_path: Path) -> None:
    streams = [namer().stream(["a", "b"]), namer().stream(["c"])]
    for stream in streams:
        next(stream)
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
