"""What is shown is what the model did: the greedy translation and its own attention weights."""

from __future__ import annotations

import pytest
import torch

from headwise.config import ModelConfig
from headwise.data.tokenizer import Tokenizer
from headwise.decode.translate import Translator
from headwise.errors import DataError
from headwise.model.encoder_decoder import AttentionMaps, EncoderDecoder
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
    assert [stack.kind for stack in reading.attention.stacks] == ["encoder", "decoder", "cross"]
    for kind, layers in (("cross", 3), ("encoder", 2), ("decoder", 3)):
        stack = reading.stack(kind)  # type: ignore[arg-type]
        assert len(stack.layers) == layers
        for layer in stack.layers:
            assert layer.weights.shape == (2, len(stack.queries), len(stack.keys))
            torch.testing.assert_close(layer.weights.sum(-1), torch.ones(layer.weights.shape[:2]))
    encoder, decoder, cross = reading.attention.stacks
    assert encoder.keys == encoder.queries == (*tokenizer.pieces(TEXT), "<eos>") == cross.keys
    assert decoder.keys == ("<bos>", *cross.queries[:-1]) and decoder.queries == cross.queries
    assert cross.axes == ("source: read", "target: written") and decoder.axes[0] == "target: known"
    for layer in decoder.layers:
        assert not layer.weights.triu(1).any(), "a token was read before it was written"
        assert torch.equal(layer.keep, layer.keep.tril()) and bool(layer.keep[0, 5, :6].all())


def test_the_weights_are_those_of_the_pass(model: EncoderDecoder, tokenizer: Tokenizer) -> None:
    reading = read_sentence(model, tokenizer, TEXT)
    source = torch.tensor([[*tokenizer.encode([TEXT])[0], tokenizer.eos_id]])
    names = {name: index for index, name in enumerate(tokenizer.names(range(tokenizer.vocab_size)))}
    known = torch.tensor([[names[name] for name in reading.stack("decoder").keys]])
    maps = AttentionMaps()
    with torch.no_grad():
        model.eval()(source, known, maps)
    for stack, expected in zip(
        reading.attention.stacks, (maps.encoder, maps.decoder, maps.cross), strict=True
    ):
        for layer, weights in zip(stack.layers, expected, strict=True):
            torch.testing.assert_close(layer.weights, weights[0], atol=1e-6, rtol=0)
            assert not torch.allclose(layer.weights.flip(0), weights[0], atol=1e-3)


def test_a_given_translation_is_written_instead_of_the_models_own(
    model: EncoderDecoder, tokenizer: Tokenizer
) -> None:
    reading = read_sentence(model, tokenizer, TEXT, "a hat")
    pieces = tuple(tokenizer.pieces("a hat"))
    assert reading.answer == "a hat" and reading.stack("cross").queries == (*pieces, "<eos>")
    assert reading.stack("decoder").keys == ("<bos>", *pieces)
    assert "given translation" in reading.attention.title
    own = read_sentence(model, tokenizer, TEXT)
    forced = read_sentence(model, tokenizer, TEXT, own.answer)
    if forced.stack("cross").queries == own.stack("cross").queries:  # an answer that ended by itself
        assert torch.equal(forced.stack("cross").layers[2].weights, own.stack("cross").layers[2].weights)


def test_the_translation_is_greedy_and_dropout_is_off(model: EncoderDecoder, tokenizer: Tokenizer) -> None:
    model.train()
    first, second = read_sentence(model, tokenizer, TEXT), read_sentence(model, tokenizer, TEXT)
    assert model.training, "the model's mode was not given back"
    assert torch.equal(first.stack("cross").layers[0].weights, second.stack("cross").layers[0].weights)
    assert first.answer == Translator(model, tokenizer, beam_size=1).translate([TEXT])[0]


def test_a_translation_that_runs_out_of_room_has_no_end(tokenizer: Tokenizer) -> None:
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, max_length=12, positions="learned"
    )
    model = EncoderDecoder(config.with_vocabulary(tokenizer.vocab_size, tokenizer.pad_id))
    with torch.no_grad():
        model.output.weight[tokenizer.eos_id] = 0  # tied, so never far above the others
    cross = read_sentence(model, tokenizer, "a cat").stack("cross")
    assert len(cross.queries) == 12 and "<eos>" not in cross.queries


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
        read_sentence(model, tokenizer, text).answer
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
    assert there.stack("cross").keys == here.stack("cross").keys
    found = there.stack("encoder").layers[0].weights
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, here.stack("encoder").layers[0].weights, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("text", "remedy"), [("", "give it words"), ("a" + " cat" * 70, "shorten it, or train with a larger")]
)
def test_a_sentence_that_cannot_be_read_is_refused(
    text: str, remedy: str, model: EncoderDecoder, tokenizer: Tokenizer
) -> None:
    with pytest.raises(DataError, match=f"must have between 1 and 63 tokens: got .*; {remedy}"):
        read_sentence(model, tokenizer, text)
    with pytest.raises(DataError, match=f"the target must have between 1 and 63 tokens: got .*; {remedy}"):
        read_sentence(model, tokenizer, TEXT, text)
