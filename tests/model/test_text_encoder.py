"""Encoder-only models of text: padding, segments, and the heads on top."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.errors import ConfigError, DataError
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder, mean_over
from model_configs import TEXT_ENCODERS, every_text_encoder, text_config
from torch_layers import VISIBLE, right_padding, shaken

PAD, V, C = 0, 29, 5
EXACT = {torch.float32: 2e-5, torch.float64: 1e-11}
both_dtypes = pytest.mark.parametrize("dtype", EXACT, ids=["float32", "float64"])
LENGTHS = [7, 4, 1]

Model = TextEncoder | MaskedLanguageModel | TextClassifier
KINDS: list[type[Model]] = [TextEncoder, MaskedLanguageModel, TextClassifier]
every_kind = pytest.mark.parametrize("kind", KINDS)


def model_of(
    kind: type[Model], name: str = "bert", dtype: torch.dtype = torch.float64, **changes: object
) -> Model:
    model = shaken(kind(text_config(name, **changes)).to(dtype), 0.05).eval()
    assert isinstance(model, kind)
    return model


def encoder(name: str = "bert", **changes: object) -> TextEncoder:
    model = model_of(TextEncoder, name, **changes)
    assert isinstance(model, TextEncoder)
    return model


def classifier(name: str = "bert", **changes: object) -> TextClassifier:
    model = model_of(TextClassifier, name, **changes)
    assert isinstance(model, TextClassifier)
    return model


def tokens(rows: int, length: int) -> Tensor:
    return torch.randint(1, V, (rows, length))


@every_text_encoder
@both_dtypes
@every_kind
@torch.no_grad()
def test_padding_in_front_or_behind_changes_nothing(kind: type[Model], dtype: torch.dtype, name: str) -> None:
    model, ids = model_of(kind, name, dtype), tokens(2, 6)
    before = model(ids)
    behind, in_front = model(F.pad(ids, (0, 4), value=PAD)), model(F.pad(ids, (4, 0), value=PAD))
    keep = torch.ones(2, 10, dtype=torch.bool)
    keep[:, :4] = False
    said, untold = model(F.pad(ids, (4, 0), value=5), keep), model(F.pad(ids, (4, 0), value=5))
    if kind is not TextClassifier:
        behind, in_front, said, untold = behind[:, :6], in_front[:, 4:], said[:, 4:], untold[:, 4:]
    for padded in (behind, in_front, said):
        assert (padded - before).abs().max() < EXACT[dtype]
    assert (untold - before).abs().max() > VISIBLE  # the wrong twin: padding taken for text


@every_text_encoder
@every_kind
@torch.no_grad()
def test_a_batch_equals_its_rows_one_by_one(kind: type[Model], name: str) -> None:
    model, ids = model_of(kind, name), tokens(3, 7)
    together = model(ids.where(right_padding(LENGTHS, 7), torch.tensor(PAD)))
    for row, length in enumerate(LENGTHS):
        alone = model(ids[row : row + 1, :length])[0]
        mine = together[row] if kind is TextClassifier else together[row, :length]
        assert (mine - alone).abs().max() < 1e-11


@every_text_encoder
@torch.no_grad()
def test_every_token_sees_every_other_on_both_sides(name: str) -> None:
    model, ids = encoder(name), tokens(1, 5)
    before = model(ids)
    for t in range(5):
        changed = ids.clone()
        changed[:, t] = ids[:, t] % (V - 1) + 1
        assert bool(((model(changed) - before).abs().amax(-1) > 1e-6).all())


@every_text_encoder
@torch.no_grad()
def test_the_order_of_the_tokens_matters(name: str) -> None:
    model, ids = encoder(name), tokens(1, 5)
    ids[0, :2] = torch.tensor([3, 4])
    swapped = ids[:, [1, 0, 2, 3, 4]]
    assert (model(swapped)[:, 4] - model(ids)[:, 4]).abs().max() > 1e-6


@every_text_encoder
@torch.no_grad()
def test_maps_lie_within_the_padding_and_move_no_result(name: str) -> None:
    model, maps = encoder(name), list[Tensor]()
    ids = tokens(3, 7).where(right_padding(LENGTHS, 7), torch.tensor(PAD))
    assert (model(ids, maps=maps) - model(ids)).abs().max() < 1e-12
    assert len(maps) == 2
    for weights in maps:
        assert not weights.masked_fill((ids != PAD)[:, None, None], 0).any()
        assert (weights.sum(-1) - 1).abs().max() < 1e-12


@torch.no_grad()
def test_segments_reach_every_model() -> None:
    ids = tokens(2, 6)
    segments = (torch.arange(6) > 2).long().expand(2, 6)
    for kind in KINDS:
        model = model_of(kind)
        assert torch.equal(model(ids), model(ids, segments=torch.zeros_like(ids)))
        assert (model(ids, segments=segments) - model(ids)).abs().max() > VISIBLE
        with pytest.raises(DataError, match="this model has no segments"):
            model_of(kind, "modern")(ids, segments=segments)


@torch.no_grad()
def test_without_a_padding_id_every_id_is_text() -> None:
    for kind in KINDS:
        model, ids = model_of(kind, pad_id=None), tokens(2, 6)
        assert (model(F.pad(ids, (0, 1), value=0)).flatten(1)[:, :5] - model(ids).flatten(1)[:, :5]).any()
        assert torch.equal(model(ids), model(ids, torch.ones(2, 6, dtype=torch.bool)))


def test_a_row_of_nothing_but_padding_gives_finite_results_and_gradients() -> None:
    for kind in KINDS:
        for name in TEXT_ENCODERS:
            model, ids = model_of(kind, name), tokens(2, 5)
            ids[1] = PAD
            result = model(ids)
            result.square().mean().backward()
            assert bool(result.isfinite().all())
            assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("name", ["bert", "modern", "paper"])
@torch.no_grad()
def test_padding_in_the_middle_is_stepped_over_where_places_are_told(name: str) -> None:
    model, ids = encoder(name), tokens(2, 6)
    parted = torch.cat((ids[:, :2], torch.full((2, 3), PAD), ids[:, 2:]), dim=1)
    assert (model(parted)[:, [0, 1, 5, 6, 7, 8]] - model(ids)).abs().max() < 1e-11


# sentence vectors


@every_text_encoder
@torch.no_grad()
def test_sentence_vectors_have_length_one_and_know_no_padding(name: str) -> None:
    model, ids = encoder(name), tokens(3, 7)
    together = model.sentence_vectors(ids.where(right_padding(LENGTHS, 7), torch.tensor(PAD)))
    assert together.shape == (3, 12)
    assert (together.norm(dim=-1) - 1).abs().max() < 1e-12
    for row, length in enumerate(LENGTHS):
        vectors = model(ids[row : row + 1, :length])[0]
        expected = vectors.mean(0) / vectors.mean(0).norm()
        assert (together[row] - expected).abs().max() < 1e-11
    # the wrong twin: the mean over padding too
    padded = model(ids.where(right_padding(LENGTHS, 7), torch.tensor(PAD))).mean(1)
    assert (together - F.normalize(padded, dim=-1)).abs().max() > VISIBLE


def test_the_mean_is_over_what_is_kept_and_zero_over_nothing() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    keep = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [0, 0, 0, 0]]).bool()
    means = mean_over(x, keep)
    assert (means[0] - x[0].mean(0)).abs().max() < 1e-15
    assert (means[1] - x[1, 1:3].mean(0)).abs().max() < 1e-15
    assert not means[2].any()
    assert torch.equal(mean_over(x), x.mean(1))


# heads


@pytest.mark.parametrize("name", ["bert", "modern", "alibi"])
@torch.no_grad()
def test_masked_tokens_are_guessed_through_layer_activation_norm_and_the_embeddings(name: str) -> None:
    model, ids = model_of(MaskedLanguageModel, name), tokens(2, 6)
    assert isinstance(model, MaskedLanguageModel)
    bend = F.relu if name == "alibi" else F.gelu  # as in the feed-forward layers
    hidden = model.norm(bend(model.transform(model.body(ids))))
    bias = model.output.bias if name == "bert" else 0
    is_tied = name != "alibi"
    table = model.body.embedding.tokens.table.weight
    assert (model.output.weight is table) is is_tied
    assert (model(ids) - hidden @ model.output.weight.T - bias).abs().max() < 1e-12
    assert torch.equal(model.logits(model.body(ids)), model(ids))


@torch.no_grad()
def test_a_class_is_read_off_the_first_token_or_off_the_mean() -> None:
    ids = tokens(2, 6)
    for pooling in ("first", "mean"):
        model = classifier(pooling=pooling)
        hidden = model.body(ids)
        whole = hidden[:, 0] if pooling == "first" else hidden.mean(1)
        expected = model.output(model.pool(whole).tanh())
        assert model(ids).shape == (2, C)
        assert (model(ids) - expected).abs().max() < 1e-12
        other = hidden.mean(1) if pooling == "first" else hidden[:, 0]
        assert (model(ids) - model.output(model.pool(other).tanh())).abs().max() > VISIBLE


@torch.no_grad()
def test_what_stands_for_a_text_is_bent_as_configured() -> None:
    ids = tokens(2, 6)
    tanh, relu = classifier(), classifier(pooling_activation="relu")
    relu.load_state_dict(tanh.state_dict())
    whole = tanh.pool(tanh.body(ids)[:, 0])
    assert (tanh(ids) - tanh.output(whole.tanh())).abs().max() < 1e-12
    assert (relu(ids) - tanh.output(F.relu(whole))).abs().max() < 1e-12
    assert (relu(ids) - tanh(ids)).abs().max() > VISIBLE


def test_dropout_only_while_training() -> None:
    for kind in KINDS:
        model, ids = model_of(kind, dropout=0.5), tokens(2, 6)
        assert torch.equal(model(ids), model(ids))
        model.train()
        assert not torch.equal(model(ids), model(ids))


@every_kind
@pytest.mark.parametrize(
    "layers", [{"num_decoder_layers": 2}, {"num_decoder_layers": 2, "num_encoder_layers": 0}]
)
def test_a_model_with_decoder_layers_is_refused(layers: dict[str, object], kind: type[Model]) -> None:
    config = text_config(**layers)
    with pytest.raises(ConfigError) as refused:
        kind(config)
    assert str(refused.value) == (
        f"a text encoder has encoder layers alone: got num_encoder_layers={config.num_encoder_layers}, "
        "num_decoder_layers=2; set num_decoder_layers=0 and num_encoder_layers to 1 or more"
    )


def test_a_classifier_without_classes_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        TextClassifier(text_config(num_classes=None))
    assert str(refused.value) == (
        "num_classes must be set to build a classifier: got None; use the data's number of classes"
    )


def test_relative_positions_look_both_ways() -> None:
    model = encoder("t5")
    bias = model.encoder.distance_positions.bias
    assert bias is not None and not getattr(bias, "is_causal", True)
    assert isinstance(bias, nn.Module)
