"""Inputs made up for models of several styles: right where they can be told, refused where they cannot."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.invent import invent_inputs
from headwise.doctor.trial import try_call
from headwise.errors import DataError

V, W, D = 23, 19, 16


class Decoder(nn.Module):
    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__()
        self.positions = nn.Embedding(32, D)
        self.tokens = nn.Embedding(V, D, padding_idx=padding_idx)
        self.layer = nn.TransformerEncoderLayer(D, 2, 32, batch_first=True)
        self.head = nn.Linear(D, V)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.head(self.layer(self.tokens(idx) + self.positions(torch.arange(idx.size(1)))))


class Functional(nn.Module):
    """No nn.Embedding: a table and F.embedding, ids cast first."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(V, D))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids.to(torch.int32).clamp(min=0), self.table)


class Fixed(nn.Module):
    """A table of positions that is added whole: only 13 tokens fit."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(V, D), nn.Parameter(torch.zeros(1, 13, D))

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.places


class Translator(nn.Module):
    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.a, self.b = nn.Embedding(V, D), nn.Embedding(W, D)
        self.core = nn.Transformer(D, 2, 1, 1, 32, batch_first=batch_first)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.core(self.a(src), self.b(tgt))


class Public(nn.Module):
    """Called by keyword, like the models of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(V, D)

        class Config:
            is_encoder_decoder = True

        self.config = Config()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        assert input_ids is not None and decoder_input_ids is not None
        return {"logits": self.tokens(input_ids).mean(1, keepdim=True) + self.tokens(decoder_input_ids)}


class Vision(nn.Module):
    def __init__(self, side: int = 24) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, D, 4, 4)
        self.places = nn.Parameter(torch.zeros(1, (side // 4) ** 2 + 1, D))

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        return torch.cat([x[:, :1], x], 1) + self.places


class FlatVision(nn.Module):
    """Cuts the patches itself."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Linear(3 * 5 * 5, D)
        self.places = nn.Parameter(torch.zeros(16, D))

    def forward(self, img: Tensor) -> Tensor:
        x = F.unfold(img, 5, stride=5).transpose(1, 2)
        return self.patches(x) + self.places


class Series(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.entry, self.out = nn.Linear(6, D), nn.Linear(D, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.entry(x)))


class OneHot(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(V, D)

    def forward(self, ids: Tensor) -> Tensor:
        return self.entry(F.one_hot(ids, V).float())


def ids_of(inputs: Any) -> list[Tensor]:
    return list(inputs.values()) if isinstance(inputs, dict) else list(inputs)


@pytest.mark.parametrize(
    ("build", "shapes", "below"),
    [
        (Decoder, [(3, 11)], [V]),
        (Functional, [(3, 11)], [V]),
        (Fixed, [(3, 13)], [V]),
        (Translator, [(3, 11), (3, 7)], [V, W]),
        (Public, [(3, 11), (3, 7)], [V, V]),
    ],
)
def test_token_ids_stay_below_the_vocabulary_that_they_reach(
    build: Any, shapes: list[tuple[int, int]], below: list[int]
) -> None:
    model = build()
    inputs, assumed = invent_inputs(model)
    ids = ids_of(inputs)
    assert [tuple(t.shape) for t in ids] == shapes and all(t.dtype == torch.int64 for t in ids)
    for tensor, size in zip(ids, below, strict=True):
        assert tensor.min() >= 4 and size // 2 < tensor.max() < size
    assert try_call(model, inputs).error is None
    said = str(assumed["inputs_from"])
    assert said.startswith("token ids [3, ") and f"below {below[-1]}" in said and said.endswith("made up")


@pytest.mark.parametrize(
    ("build", "shape"),
    [(Vision, (3, 1, 24, 24)), (FlatVision, (3, 3, 20, 20)), (Series, (3, 11, 6))],
)
def test_models_of_numbers_get_numbers_of_their_width(build: Any, shape: tuple[int, ...]) -> None:
    model = build()
    inputs, assumed = invent_inputs(model)
    assert tuple(inputs[0].shape) == shape and inputs[0].is_floating_point()
    assert assumed == {"inputs_from": f"random numbers {list(shape)}, made up"}


def test_torchs_own_transformer_gets_vectors_of_its_width() -> None:
    inputs, _ = invent_inputs(nn.TransformerEncoderLayer(D, 2, 32, batch_first=True))
    assert tuple(inputs[0].shape) == (3, 11, D)


def test_the_same_inputs_every_time_and_the_model_as_it_was() -> None:
    model = Decoder().train()
    model.layer.eval()
    state = torch.random.get_rng_state()
    first, second = invent_inputs(model)[0][0], invent_inputs(model)[0][0]
    assert torch.equal(first, second) and torch.equal(state, torch.random.get_rng_state())
    assert model.training and not model.layer.training
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_the_padding_of_the_embedding_is_told_and_not_drawn() -> None:
    inputs, assumed = invent_inputs(Decoder(padding_idx=9))
    assert assumed["pad_id"] == 9 and not (inputs[0] == 9).any()
    assert "pad_id" not in invent_inputs(Decoder())[1]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_torchs_time_major_attention_asks_for_the_order_of_axes() -> None:
    with pytest.raises(DataError, match=r"file\.py: nn\.MultiheadAttention.*--layout time-major"):
        invent_inputs(Translator(batch_first=False), None, "file.py")
    time_major, _ = invent_inputs(Translator(batch_first=False), "time-major")
    assert [tuple(t.shape) for t in time_major] == [(11, 3), (7, 3)]
    assert tuple(invent_inputs(Decoder(), "batch-first")[0][0].shape) == (3, 11)


def test_a_model_that_fails_after_its_embedding_gets_its_ids_all_the_same() -> None:
    class Broken(Decoder):
        def forward(self, idx: Tensor, targets: Tensor | None = None) -> Tensor:
            return nn.functional.linear(self.tokens(idx), torch.zeros(3, D + 1))

    inputs, assumed = invent_inputs(Broken())
    assert tuple(inputs[0].shape) == (3, 11) and inputs[0].max() > 4
    assert str(assumed["inputs_from"]).endswith("the model fails on every length tried")


class NeedsMask(Decoder):
    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:  # pyright: ignore
        return self.head(self.layer(self.tokens(src), src_mask))


class MayHaveMask(Translator):
    def forward(self, src: Tensor, tgt: Tensor, tgt_mask: Tensor | None = None) -> Tensor:
        return self.core(self.a(src), self.b(tgt), tgt_mask=tgt_mask)


class NeedsLengths(Decoder):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # pyright: ignore
        return self.tokens(x)


class NeedsThree(Decoder):
    def forward(self, x: Tensor, tgt: Tensor, step: int) -> Tensor:  # pyright: ignore
        return self.tokens(x)


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("not like this")


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            NeedsMask,
            r"forward\(src, src_mask\): True in src_mask may mean .* \"call\": lambda model, src: model\(",
        ),
        (MayHaveMask, r"without tgt_mask it may be another model.*model\(src, tgt, tgt_mask=\.\.\.\)"),
        (NeedsLengths, "lengths cannot be made up; add a function: def subject"),
        (NeedsThree, "tgt and step cannot be made up"),
        (OneHot, "token ids without an embedding"),
        (Nothing, r"tried token ids \[3, 11\] \(ValueError: not like this, at .*test_invent.py:\d+ in "),
    ],
)
def test_what_cannot_be_made_up_is_asked_for(build: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        invent_inputs(build(), None, "file.py")
