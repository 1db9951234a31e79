"""An image classifier: patches through the encoder, and what reads the class off them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise.errors import ConfigError
from headwise.model.vision import ImageClassifier
from model_configs import IMAGE_MODELS, every_image_model, image_config
from torch_layers import VISIBLE, shaken


def model_of(name: str = "vit", **changes: object) -> ImageClassifier:
    model = shaken(ImageClassifier(image_config(name, **changes)).double(), 0.05).eval()
    assert isinstance(model, ImageClassifier)
    return model


def images(rows: int = 2) -> Tensor:
    return torch.randn(rows, 3, 6, 8, dtype=torch.float64)


def shuffled(x: Tensor, order: Tensor) -> Tensor:
    """The same 3 x 4 patches of 2 x 2 pixels in another order."""
    patches = x.unflatten(2, (3, 2)).unflatten(4, (4, 2)).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    patches = patches[:, order].unflatten(1, (3, 4))
    return patches.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


@every_image_model
@torch.no_grad()
def test_a_batch_equals_its_images_one_by_one(name: str) -> None:
    model, x = model_of(name), images(3)
    together = model(x)
    assert together.shape == (3, 5)
    for row in range(3):
        assert (together[row] - model(x[row : row + 1])[0]).abs().max() < 1e-12
    assert (together[0] - together[1]).abs().max() > VISIBLE


@every_image_model
@torch.no_grad()
def test_the_class_is_read_off_the_first_vector_or_off_the_mean(name: str) -> None:
    model, x = model_of(name), images()
    hidden = model.encoder(model.embedding(x))
    is_mean = model.config.pooling == "mean"
    assert hidden.shape == (2, 12 if is_mean else 13, 12)
    ways = hidden[:, 0], hidden.mean(1)
    assert (model(x) - model.output(ways[is_mean])).abs().max() < 1e-12
    assert (model(x) - model.output(ways[not is_mean])).abs().max() > VISIBLE


@pytest.mark.parametrize("pooling", ["first", "mean"])
@torch.no_grad()
def test_without_positions_the_order_of_the_patches_is_invisible(pooling: str) -> None:
    x, order = images(), torch.randperm(12)
    assert torch.equal(shuffled(x, torch.arange(12)), x) and not torch.equal(shuffled(x, order), x)
    model = model_of("mean", pooling=pooling)
    assert (model(shuffled(x, order)) - model(x)).abs().max() < 1e-12
    # inside a patch it is not, and with positions neither
    assert (model(x.flip(-1)) - model(x)).abs().max() > VISIBLE
    for positions in ("learned", "sinusoidal", "rotary", "relative"):
        other = model_of("mean", pooling=pooling, positions=positions)
        assert (other(shuffled(x, order)) - other(x)).abs().max() > 1e-6


@every_image_model
@torch.no_grad()
def test_every_patch_matters(name: str) -> None:
    model, x = model_of(name), images(1)
    before = model(x)
    for row in range(3):
        for column in range(4):
            changed = x.clone()
            changed[:, :, 2 * row, 2 * column] += 1
            assert (model(changed) - before).abs().max() > 1e-6


@every_image_model
@torch.no_grad()
def test_maps_are_one_a_block_over_all_patches_and_move_no_result(name: str) -> None:
    model, x, maps = model_of(name), images(), list[Tensor]()
    assert (model(x, maps) - model(x)).abs().max() < 1e-12
    length = 12 if model.config.pooling == "mean" else 13
    assert [tuple(w.shape) for w in maps] == [(2, model.config.num_heads, length, length)] * 2
    assert all((w.sum(-1) - 1).abs().max() < 1e-12 for w in maps)


def test_every_parameter_gets_a_gradient() -> None:
    for name in IMAGE_MODELS:
        model = model_of(name)
        model(images()).square().mean().backward()
        assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


def test_dropout_only_while_training() -> None:
    model, x = model_of(dropout=0.5), images()
    assert torch.equal(model(x), model(x))
    model.train()
    assert not torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    "layers", [{"num_decoder_layers": 2}, {"num_decoder_layers": 2, "num_encoder_layers": 0}]
)
def test_a_model_with_decoder_layers_is_refused(layers: dict[str, object]) -> None:
    config = image_config(**layers)
    with pytest.raises(ConfigError) as refused:
        ImageClassifier(config)
    assert str(refused.value) == (
        f"an image classifier has encoder layers alone: got num_encoder_layers={config.num_encoder_layers}, "
        "num_decoder_layers=2; set num_decoder_layers=0 and num_encoder_layers to 1 or more"
    )


def test_a_classifier_without_classes_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        ImageClassifier(image_config(num_classes=None))
    assert str(refused.value) == (
        "num_classes must be set to build a classifier: got None; use the data's number of classes"
    )
