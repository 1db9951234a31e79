"""What is drawn is what the model did: the greedy translation and its own attention weights."""

from __future__ import annotations

import pytest
import torch

from headwise.config import ModelConfig
from headwise.data.tokenizer import Tokenizer
from headwise.decode.translate import Translator
from headwise.errors import DataError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.see.reading import read_sentence

TEXT = "a cat sat"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a cat sat on a mat", "a hat"], 40)


@pytest.fixture
def model(tokenizer: Tokenizer) -> EncoderDecoder:
    config = ModelConfig(d_model=8, num_heads=2, num_encoder_layers=2, num_decoder_layers=3, max_length=64)
    return EncoderDecoder(config.with_vocabulary(tokenizer.vocab_size, tokenizer.pad_id))


def test_the_maps_have_a_row_for_each_token_that_reads(model: EncoderDecoder, tokenizer: Tokenizer) -> None:
    reading = read_sentence(model, tokenizer, TEXT)
    for seen, layers in ((reading.cross, 3), (reading.encoder, 2), (reading.decoder, 3)):
        assert len(seen.maps) == layers
        for weights in seen.maps:
            assert weights.shape == (2, len(seen.reading), len(seen.read))
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    assert reading.encoder.read == [*tokenizer.pieces(TEXT), "<eos>"] == reading.cross.read
    assert reading.decoder.read == ["<bos>", *reading.cross.reading[:-1]]
    for weights in reading.decoder.maps:
        assert not weights.triu(1).any(), "a token was read before it was written"


def test_the_translation_is_greedy_and_dropout_is_off(model: EncoderDecoder, tokenizer: Tokenizer) -> None:
    model.train()
    first, second = read_sentence(model, tokenizer, TEXT), read_sentence(model, tokenizer, TEXT)
    assert model.training, "the model's mode was not given back"
    assert torch.equal(first.cross.maps[0], second.cross.maps[0])
    assert first.translation == Translator(model, tokenizer, beam_size=1).translate([TEXT])[0]


def test_a_translation_that_runs_out_of_room_has_no_end(tokenizer: Tokenizer) -> None:
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, max_length=12, positions="learned"
    )
    model = EncoderDecoder(config.with_vocabulary(tokenizer.vocab_size, tokenizer.pad_id))
    with torch.no_grad():
        model.output.weight[tokenizer.eos_id] = 0  # tied, so never far above the others
    cross = read_sentence(model, tokenizer, "a cat").cross
    assert len(cross.reading) == 12 and "<eos>" not in cross.reading


@pytest.mark.parametrize("length", [1, 4, 12])
def test_law_the_translation_is_the_translators(length: int, tokenizer: Tokenizer) -> None:
    config = ModelConfig(
        d_model=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, max_length=40, positions="learned"
    )
    model = EncoderDecoder(config.with_vocabulary(tokenizer.vocab_size, tokenizer.pad_id))
    with torch.no_grad():
        model.output.weight[tokenizer.eos_id] = 0  # so that only the limit ends it
    text = " ".join(["cat"] * length)
    assert (
        read_sentence(model, tokenizer, text).translation
        == (Translator(model, tokenizer, beam_size=1).translate([text])[0])
    )


def test_every_part_keeps_its_own_mode(model: EncoderDecoder, tokenizer: Tokenizer) -> None:
    model.train()
    model.decoder.eval()
    read_sentence(model, tokenizer, TEXT)
    assert model.training and model.encoder.training and not model.decoder.training


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_a_sentence_is_read_where_the_model_is(model: EncoderDecoder, tokenizer: Tokenizer) -> None:
    here = read_sentence(model, tokenizer, TEXT)
    there = read_sentence(model.cuda(), tokenizer, TEXT)
    assert there.cross.read == here.cross.read and there.encoder.maps[0].is_cuda
    torch.testing.assert_close(there.encoder.maps[0].cpu(), here.encoder.maps[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("text", "remedy"), [("", "give it words"), ("a" + " cat" * 70, "shorten it, or train with a larger")]
)
def test_a_sentence_that_cannot_be_read_is_refused(
    text: str, remedy: str, model: EncoderDecoder, tokenizer: Tokenizer
) -> None:
    with pytest.raises(DataError, match=f"must have between 1 and 63 tokens: got .*; {remedy}"):
        read_sentence(model, tokenizer, text)
