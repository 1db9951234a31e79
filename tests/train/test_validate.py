"""What a validation measures, and that it leaves training as it was."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.config import RunConfig
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.train.prepare import Prepared, prepare
from headwise.train.validate import TranslationValidation, validate
from tiny_run import tiny


@pytest.fixture(name="config")
def some_config(tmp_path: Path) -> RunConfig:
    return tiny(tmp_path / "run", samples=2)


@pytest.fixture(name="data")
def some_data(config: RunConfig, tmp_path: Path) -> Prepared:
    return prepare(config, tmp_path / "tokenizer.json", lambda _: None)


@pytest.fixture(name="model")
def some_model(config: RunConfig, data: Prepared) -> EncoderDecoder:
    return EncoderDecoder(config.model.with_vocabulary(data.tokenizer.vocab_size, data.tokenizer.pad_id))


def measure(config: RunConfig, data: Prepared, model: EncoderDecoder) -> TranslationValidation:
    return validate(model, data.tokenizer, data.validation, data.validation_pairs, config.train)


def test_loss_and_accuracy_are_those_of_each_pair_alone(
    config: RunConfig, data: Prepared, model: EncoderDecoder
) -> None:
    result = measure(config, data, model)
    loss, right, tokens = 0.0, 0, 0
    model.eval()
    for row in range(len(data.validation.source)):
        batch = data.validation.batch([row], data.tokenizer)
        logits: Tensor = model(batch.source, batch.decoder_input)[0].detach()
        loss += F.cross_entropy(logits, batch.labels[0], reduction="sum").item()  # no label smoothing
        right += int((logits.argmax(-1) == batch.labels[0]).sum())
        tokens += batch.labels.numel()
    assert config.train.label_smoothing > 0
    assert result.loss == pytest.approx(loss / tokens, rel=1e-5)
    assert result.accuracy == pytest.approx(right / tokens)
    assert result.perplexity == pytest.approx(math.exp(loss / tokens), rel=1e-4)


def test_it_disturbs_neither_random_state_nor_mode_nor_weights(
    config: RunConfig, data: Prepared, model: EncoderDecoder
) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for mode in (True, False):
        model.train(mode)
        random = torch.get_rng_state()
        first = measure(config, data, model)
        assert torch.equal(torch.get_rng_state(), random)
        assert model.training is mode
        assert measure(config, data, model) == first
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None and not p.is_inference() for p in model.parameters())


def test_every_parts_mode_comes_back_even_after_a_failure(
    config: RunConfig, data: Prepared, model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.train()
    model.encoder.eval()  # a part that somebody froze
    modes = [part.training for part in model.modules()]
    measure(config, data, model)
    assert [part.training for part in model.modules()] == modes
    monkeypatch.setattr(model, "logits", None)
    with pytest.raises(TypeError):
        measure(config, data, model)
    assert [part.training for part in model.modules()] == modes
    assert not torch.is_inference_mode_enabled()


def test_bleu_only_where_it_is_watched_and_samples_as_many_as_asked(
    config: RunConfig, data: Prepared, model: EncoderDecoder
) -> None:
    result = measure(config, data, model)
    assert result.bleu is None
    assert set(result.metrics("final")) == {"final_loss", "final_perplexity", "final_accuracy"}
    assert [line.split("  ->  ")[0] for line in result.samples] == [s for s, _ in data.validation_pairs[:2]]
    watching = replace(config, train=replace(config.train, watch="bleu", samples=0))
    result = measure(watching, data, model)
    assert result.bleu is not None
    assert result.samples == []
    assert result.metrics("final")["final_bleu"] == result.bleu
    assert f"BLEU {result.bleu:.2f}" in result.summary()


def test_a_hopeless_model_has_a_perplexity_all_the_same() -> None:
    assert math.isfinite(TranslationValidation(loss=1e6, accuracy=0, bleu=None, samples=[]).perplexity)
