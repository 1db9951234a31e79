"""Looking ids up, the factor sqrt(d_model), segments; images cut into patches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ConfigError, DataError
from headwise.model.embed import InputEmbedding, PatchEmbedding, TokenEmbedding
from headwise.model.norm import LayerNorm
from model_configs import image_config
from torch_layers import VISIBLE, shaken, small_config


def test_each_id_becomes_its_row_times_sqrt_d_model() -> None:
    embedding = TokenEmbedding(small_config(d_model=9, positions="none"))
    ids = torch.tensor([[3, 0, 28], [3, 3, 1]])
    vectors = embedding(ids)
    assert vectors.shape == (2, 3, 9)
    for b in range(2):
        for t in range(3):
            assert torch.equal(vectors[b, t], embedding.table.weight[ids[b, t]] * 3)


def test_the_factor_can_be_left_out() -> None:
    embedding = TokenEmbedding(small_config(scale_embedding=False))
    assert torch.equal(embedding(torch.tensor([[7]]))[0, 0], embedding.table.weight[7])


def test_a_model_without_vocabulary_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        TokenEmbedding(small_config(vocab_size=None))
    assert str(refused.value) == (
        "vocab_size must be set to build a model: got None; use the tokenizer's vocab_size"
    )


# tokens, positions, segments


def input_embedding(**changes: object) -> InputEmbedding:
    embedding = InputEmbedding(small_config(**changes)).double()
    for parameter in embedding.parameters():
        nn.init.normal_(parameter)
    return embedding.eval()


@pytest.mark.parametrize("has_norm", [True, False], ids=["norm", "no norm"])
def test_tokens_positions_and_segments_are_added_and_then_normed(has_norm: bool) -> None:
    embedding = input_embedding(num_segments=3, embedding_norm=has_norm, positions="learned")
    assert embedding.segments is not None
    ids, segments = torch.randint(0, 29, (2, 5)), torch.randint(0, 3, (2, 5))
    table = embedding.positions.table
    assert isinstance(table, Tensor)
    total = embedding.tokens(ids) + table[:5] + embedding.segments.weight[segments]
    expected = total if embedding.norm is None else embedding.norm(total)
    assert isinstance(embedding.norm, LayerNorm) is has_norm
    assert (embedding(ids, segments=segments) - expected).abs().max() < 1e-12
    assert (embedding(ids) - expected).abs().max() > VISIBLE


def test_without_segments_given_all_belong_to_the_first() -> None:
    embedding = input_embedding(num_segments=2)
    ids = torch.randint(0, 29, (2, 5))
    assert torch.equal(embedding(ids), embedding(ids, segments=torch.zeros_like(ids)))
    assert not torch.equal(embedding(ids), embedding(ids, segments=torch.ones_like(ids)))


def test_segments_of_a_model_that_has_none_are_refused() -> None:
    ids = torch.ones(2, 5, dtype=torch.long)
    with pytest.raises(DataError) as refused:
        input_embedding()(ids, segments=ids)
    assert str(refused.value) == "this model has no segments (num_segments=0): got segments; leave them out"


def test_offset_and_places_reach_the_positions() -> None:
    embedding, ids = input_embedding(), torch.randint(0, 29, (2, 5))
    assert torch.equal(embedding(ids, 3), embedding(ids, 0, torch.arange(3, 8)[None]))
    assert not torch.equal(embedding(ids, 3), embedding(ids))


def test_dropout_falls_on_the_sum_while_training() -> None:
    embedding, ids = input_embedding(dropout=0.5), torch.randint(0, 29, (20, 30))
    whole, thinned = embedding(ids), embedding.train()(ids)
    is_kept = thinned != 0
    assert 0.45 < is_kept.double().mean() < 0.55
    assert (thinned - 2 * whole)[is_kept].abs().max() < 1e-9


# patches


def patch_embedding(**changes: object) -> PatchEmbedding:
    embedding = PatchEmbedding(image_config(**changes)).double()
    for parameter in embedding.parameters():
        nn.init.normal_(parameter)
    return embedding.eval()


def images(rows: int = 2) -> Tensor:
    return torch.randn(rows, 3, 6, 8, dtype=torch.float64)


def test_patches_are_a_convolution_whose_stride_is_its_width() -> None:
    embedding = patch_embedding(positions="none", pooling="mean")
    convolution = nn.Conv2d(3, 12, kernel_size=2, stride=2, dtype=torch.float64)
    with torch.no_grad():
        convolution.weight.copy_(embedding.project.weight.view(12, 3, 2, 2))
        convolution.bias.copy_(embedding.project.bias)  # pyright: ignore[reportOptionalMemberAccess]
    x = images()
    expected = convolution(x).flatten(2).transpose(1, 2)
    assert expected.shape == (2, 12, 12)  # 3 x 4 patches
    assert (embedding(x) - expected).abs().max() < 1e-12
    # wrong twins: pixels in another order inside the patch, patches from top to bottom first
    with torch.no_grad():
        convolution.weight.copy_(embedding.project.weight.view(12, 2, 2, 3).permute(0, 3, 1, 2))
    assert (embedding(x) - convolution(x).flatten(2).transpose(1, 2)).abs().max() > VISIBLE
    assert (embedding(x) - expected.unflatten(1, (3, 4)).transpose(1, 2).flatten(1, 2)).abs().max() > VISIBLE


def test_patches_come_from_left_to_right_and_then_from_top_to_bottom() -> None:
    embedding, x = patch_embedding(positions="none", pooling="mean"), images()
    before = embedding(x)
    for row in range(3):
        for column in range(4):
            changed = x.clone()
            changed[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] += 1
            moved = (embedding(changed) - before).abs().amax((0, 2)) > VISIBLE
            assert moved.nonzero().flatten().tolist() == [4 * row + column]


@pytest.mark.parametrize("has_norm", [True, False], ids=["norm", "no norm"])
def test_the_class_token_stands_in_front_and_has_the_first_position(has_norm: bool) -> None:
    embedding = patch_embedding(positions="learned", embedding_norm=has_norm)
    mean = patch_embedding(positions="none", pooling="mean")
    mean.project.load_state_dict(embedding.project.state_dict())
    assert embedding.class_token is not None and mean.class_token is None
    table, x = embedding.positions.table, images()
    assert isinstance(table, Tensor)
    rows = torch.cat((embedding.class_token.expand(2, 1, 12), mean(x)), dim=1) + table[:13]
    expected = rows if embedding.norm is None else embedding.norm(rows)
    assert (embedding(x) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("shape", [(2, 1, 6, 8), (2, 3, 8, 6), (2, 3, 6, 10)])
def test_images_of_another_size_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as refused:
        patch_embedding()(torch.zeros(shape, dtype=torch.float64))
    assert str(refused.value) == (
        f"images must be [B, 3, 6, 8] (channels, height, width): got {list(shape)}; "
        "resize them or set model.patches"
    )


def test_more_patches_than_learned_positions_are_refused() -> None:
    with pytest.raises(DataError, match="got a sequence of 13 tokens, max_length=12"):
        patch_embedding(max_length=12)(images())
    patch_embedding(max_length=12, pooling="mean")(images())


def test_shaking_a_pixel_shakes_one_patch_alone() -> None:
    embedding = shaken(patch_embedding(positions="none"))
    x = images()
    changed = x.clone()
    changed[0, 1, 5, 7] += 1
    moved = (embedding(changed) - embedding(x)).abs().amax(-1) > VISIBLE
    assert moved.nonzero().tolist() == [[0, 12]]
