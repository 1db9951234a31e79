"""Each kind of data gets its model, with the vocabulary and the classes that the data have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwise.checkpoint.build import build_model
from headwise.config import RunConfig
from headwise.data.text_tokenizer import CLASS, MASK, PADDING, TextTokenizer
from headwise.data.tokenizer import Tokenizer
from headwise.errors import ConfigError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.language_model import LanguageModel
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier
from headwise.model.vision import ImageClassifier
from tiny_run import tiny, tiny_kind, with_model

TEXT = TextTokenizer.train(["some text"], "characters", 0, (PADDING, CLASS, MASK))


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("language", LanguageModel),
        ("masked", MaskedLanguageModel),
        ("labelled", TextClassifier),
        ("images", ImageClassifier),
    ],
)
def test_the_kind_decides_the_model(kind: str, model: type, tmp_path: Path) -> None:
    classes = ("a", "b", "c") if kind in ("labelled", "images") else ()
    built = build_model(tiny_kind(kind, tmp_path / "run"), None if kind == "images" else TEXT, classes)
    assert type(built) is model
    assert built.config.num_classes == (3 if classes else None)
    if kind != "images":
        assert built.config.vocab_size == TEXT.vocab_size
        # a text that is continued has no padding: a token that only looks like it is read
        assert built.config.pad_id == (None if kind == "language" else TEXT.pad_id)


def test_pairs_get_an_encoder_decoder(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["one two"], 64)
    built = build_model(tiny(tmp_path), tokenizer)
    assert type(built) is EncoderDecoder and built.config.pad_id == tokenizer.pad_id


def config(folder: Path, **model: object) -> RunConfig:
    return with_model(tiny_kind("labelled", folder / "run"), **model)


def test_it_draws_from_the_random_state(tmp_path: Path) -> None:
    torch.manual_seed(5)
    first = build_model(config(tmp_path), TEXT, ("a", "b"))
    torch.manual_seed(5)
    again = build_model(config(tmp_path), TEXT, ("a", "b"))
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), again.parameters(), strict=True))


def test_what_does_not_fit_the_data_is_refused(tmp_path: Path) -> None:
    build_model(config(tmp_path, num_classes=2), TEXT, ("a", "b"))
    with pytest.raises(ConfigError, match="must equal that of the data: got 3, the data have 2; leave"):
        build_model(config(tmp_path, num_classes=3), TEXT, ("a", "b"))
    with pytest.raises(ConfigError, match=r"model\.vocab_size must equal the tokenizer's: got 99"):
        build_model(config(tmp_path, vocab_size=99), TEXT, ("a", "b"))
