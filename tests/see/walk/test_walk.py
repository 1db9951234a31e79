"""`headwise.trace`: the classic walk three ways, models of other styles, and a model left as it was."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import headwise
from conftest import Golden
from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model.block import EncoderBlock
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.see.walk.steps import Group
from headwise.see.walk.walk import VERSION, Walk, trace
from see.walk.walk_models import Block, Einsum, Llama, TimeMajor, ids, numbers, rows, step

WHOLE, HEADS, SCORES = (2, 10, 16), (2, 4, 10, 4), (2, 4, 10, 10)
CLASSIC = [
    ("input", WHOLE),
    ("Q, K, V", WHOLE),
    ("split into heads", HEADS),
    ("scores", SCORES),
    ("softmax times V", HEADS),
    ("merge heads", WHOLE),
    ("output projection", WHOLE),
    ("add", WHOLE),
    ("LayerNorm", WHOLE),
    ("feed-forward", WHOLE),
    ("add", WHOLE),
    ("LayerNorm", WHOLE),
]  # fmt: skip


def classic_models() -> dict[str, nn.Module]:
    config = ModelConfig(d_model=16, num_heads=4, d_ff=64, norm="post")
    return {
        "by hand": Block(),
        "ours": EncoderBlock(config),
        "torch's": nn.TransformerEncoderLayer(16, 4, 64, batch_first=True),
    }


@pytest.mark.parametrize("name", ["by hand", "ours", "torch's"])
def test_the_classic_walk_three_ways(name: str) -> None:
    walk = trace(classic_models()[name], numbers(2, 10, 16))
    outline = walk.outline()
    first, shape = outline[0]
    assert [(first.split()[0], shape), *outline[1:]] == CLASSIC
    assert step(walk, "Q, K, V").count == step(walk, "split into heads").count == 3
    assert step(walk, "Q, K, V").axes == ("B", "T", "D") == step(walk, "merge heads").axes
    assert step(walk, "scores").axes == ("B", "H", "T", "T")
    assert step(walk, "softmax").shape == SCORES
    assert not [s for s in walk.steps if s.kind == "other"]


def test_a_wrong_block_is_another_walk() -> None:
    class Wrong(Block):
        def forward(self, x: Tensor) -> Tensor:
            return self.second(x + self.inner(self.first(self.attention(x))))

    outline = trace(Wrong(), numbers(2, 10, 16)).outline()
    assert outline[1:] != CLASSIC[1:]


def test_einsum_heads_with_softmax_and_norm_by_hand() -> None:
    walk = trace(Einsum(), ids())
    assert [r for r in rows(walk) if r[0] != "mask made"] == [
        ("input ids", "token ids, int64", (3, 7), "B T"),
        ("embedding", "23 x 12 table", (3, 7, 12), "B T D"),
        ("add positions", "learned table", (3, 7, 12), "B T D"),
        ("RMSNorm", "over D (by hand)", (3, 7, 12), "B T D"),
        ("Q, K, V", step(walk, "Q, K, V").operation, step(walk, "Q, K, V").shape,
         " ".join(step(walk, "Q, K, V").axes)),
        *[r for r in rows(walk) if r[0] == "split into heads"],
        ("scores", "Q K^T / sqrt(4)", (3, 3, 7, 7), "B H T T"),
        ("mask", "causal: hides 21 of 49 pairs", (3, 3, 7, 7), "B H T T"),
        ("softmax", "over the keys (by hand)", (3, 3, 7, 7), "B H T T"),
        ("softmax times V", "product with V", (3, 3, 7, 4), "B H T Dh"),
        *[r for r in rows(walk) if r[0] == "merge heads"],
        ("output projection", "linear 12 -> 12", (3, 7, 12), "B T D"),
        ("add", "stream + attention", (3, 7, 12), "B T D"),
        ("RMSNorm", "over D (by hand)", (3, 7, 12), "B T D"),
        ("up", "linear 12 -> 20", (3, 7, 20), "B T F"),
        ("activation", "gelu", (3, 7, 20), "B T F"),
        ("down", "linear 20 -> 12", (3, 7, 12), "B T D"),
        ("add", "stream + feed-forward", (3, 7, 12), "B T D"),
        ("logits", "linear 12 -> 23", (3, 7, 23), "B T V"),
    ]  # fmt: skip
    assert [row.times for row in walk.rows if isinstance(row, Group)] == [2]


def test_torchs_attention_with_time_first_is_told_as_its_author_has_it() -> None:
    walk = trace(TimeMajor(), ids())
    assert step(walk, "Q, K, V").shape == (7, 3, 16) and step(walk, "Q, K, V").axes == ("T", "B", "D")
    assert step(walk, "split into heads").axes == ("B*H", "T", "Dh")
    assert step(walk, "add").axes == ("T", "B", "D") and step(walk, "logits").axes == ("B", "T", "V")


def test_rotary_positions_shared_keys_and_a_gate() -> None:
    walk = trace(Llama(), ids())
    told = {s.name: s for s in walk.steps}
    assert told["Q, K, V"].axes == ("B", "T", "2D") and told["Q, K, V"].shape == (3, 7, 32)
    assert told["split Q"].axes == ("B", "H", "T", "Dh")
    assert told["split K, V"].axes == ("B", "Hk", "T", "Dh") and told["split K, V"].shape == (3, 2, 7, 4)
    assert told["rotate Q, K"].operation.startswith("by position")
    assert told["repeat K, V"].axes == ("B", "H", "T", "Dh")
    assert told["scores"].operation == "Q K^T / sqrt(4), in the kernel"
    assert [told[name].kind for name in ("gate", "up", "activation", "times gate", "down")] == [
        "gate", "up", "activation", "gate", "down",
    ]  # fmt: skip
    assert any("one kernel" in note for note in walk.notes)
    assert walk.sizes == {"B": 3, "T": 7, "D": 16, "H": 4, "Hk": 2, "Dh": 4, "F": 24, "V": 23}


def test_an_encoder_decoder_has_two_sections_and_cross_attention() -> None:
    config = ModelConfig(
        vocab_size=19, d_model=16, num_heads=2, d_ff=24, num_encoder_layers=2, num_decoder_layers=2
    )
    source, target = ids(3, 6) % 18 + 1, ids(3, 5) % 18 + 1
    walk = trace(EncoderDecoder(config), (source, target), kind="encoder-decoder", pad_id=0)
    sections = [row for row in walk.rows if isinstance(row, Group)]
    assert [row.title for row in sections] == ["encoder", "decoder"]
    blocks = [[row for row in section.rows if isinstance(row, Group)] for section in sections]
    assert [[row.times for row in each] for each in blocks] == [[2], [2]]
    titles = [[row.title for row in each[0].rows if isinstance(row, Group)] for each in blocks]
    assert titles == [["attention", "feed-forward"], ["attention", "cross-attention", "feed-forward"]]
    cross = [s for s in sections[1].steps if s.kind == "scores"][1]
    assert cross.axes == ("B", "H", "T", "S") and cross.shape == (3, 2, 5, 6)
    masks = [s.operation for s in sections[1].steps if s.kind == "mask"]
    assert masks[0] == "causal: hides 10 of 25 pairs" and "hides nothing" in masks[1]


def test_layers_that_differ_are_not_folded() -> None:
    blocks = nn.Sequential(Block(causal=True), Block(causal=True), Block(), Block(scale=1.0))
    walk = trace(blocks, numbers(2, 10, 16))
    groups = [row for row in walk.rows if isinstance(row, Group)]
    assert [(row.times, row.modules) for row in groups] == [(2, ("0", "1")), (1, ("2",)), (1, ("3",))]
    told = [next(s.operation for s in row.steps if s.kind == "scores") for row in groups]
    assert told == ["Q K^T / sqrt(4)", "Q K^T / sqrt(4)", "Q K^T not scaled (1/sqrt(4) = 0.5)"]


def test_the_model_comes_back_as_it_was() -> None:
    model = nn.Sequential(Block(causal=True), nn.Dropout(0.5)).train()
    model[0].attention.eval()
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    random = torch.get_rng_state()
    hooks = [dict(m._forward_hooks) for m in model.modules()]
    batch = numbers(2, 10, 16)
    kept = batch.clone()
    trace(model, batch)
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    assert [m.training for m in model.modules()] == modes
    assert [dict(m._forward_hooks) for m in model.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), random) and torch.equal(batch, kept)
    assert all(p.grad is None for p in model.parameters())


def test_the_precision_is_the_models_own_and_dropout_is_off() -> None:
    walk = trace(nn.Sequential(Block().bfloat16(), nn.Dropout(0.5)), numbers(2, 10, 16).bfloat16())
    assert {s.dtype for s in walk.steps if s.kind != "input"} == {"bfloat16"}
    assert not any("dropout" in part.name for s in walk.steps for part in s.parts)


def test_a_call_of_the_users_and_a_batch_of_one_row() -> None:
    walk = trace(Einsum(), {"x": ids(1, 5)}, call=lambda model, x: model(x))
    assert step(walk, "scores").shape == (1, 3, 5, 5) and step(walk, "scores").axes == ("B", "H", "T", "T")
    assert step(walk, "mask").operation == "causal: hides 10 of 25 pairs"
    assert walk.sizes["B"] == 1


class Wide(Block):
    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.attention(x)[..., :9])


def test_a_pass_that_fails_is_told_up_to_there() -> None:
    walk = trace(Wide(), numbers(2, 10, 16))
    assert walk.failed is not None and walk.failed.file == __file__
    assert walk.failed.code and "mat1 and mat2" in walk.failed.message
    assert "self.inner" in walk.failed.code or "x" in walk.failed.operands[0]
    names = [s.name for s in walk.steps]
    assert names[:4] == ["input x", "Q, K, V", "split into heads", "scores"] and names[-1] == "fails here"


def test_what_cannot_be_called_is_an_error_of_one_sentence() -> None:
    with pytest.raises(ConfigError, match="could not be called on its batch: TypeError"):
        trace(Block(), (numbers(2, 10, 16), numbers(2, 10, 16)))
    with pytest.raises(ConfigError, match="at least one tensor"):
        trace(Block(), "no tensor")


def test_every_form_is_written_by_its_ending(tmp_path: Path) -> None:
    walk = trace(Block(), numbers(2, 10, 16))
    assert walk.version == VERSION and str(walk) == walk.to_text().rstrip("\n")
    for name, begins in (("w.json", "{"), ("w.html", "<!DOCTYPE html>"), ("deep/w.txt", "headwise trace")):
        walk.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)
    assert json.loads(walk.to_json()) == walk.to_dict()
    bundle = walk._repr_mimebundle_()
    assert bundle["text/plain"] == str(walk) and bundle["text/html"] == walk._repr_html_()
    with pytest.raises(dataclasses.FrozenInstanceError):
        walk.flops = 0  # pyright: ignore[reportAttributeAccessIssue]


def test_the_public_names_are_these() -> None:
    assert headwise.trace is trace and headwise.Walk is Walk


@pytest.mark.parametrize("style", ["classic", "einsum", "llama"])
def test_golden_walks(style: str, golden: Golden) -> None:
    made: dict[str, tuple[nn.Module, Any]] = {
        "classic": (Block(), numbers(2, 10, 16)),
        "einsum": (Einsum(), ids()),
        "llama": (Llama(), ids()),
    }
    walk = trace(*made[style])
    text = walk.to_text(width=100, all=style == "classic")
    golden(f"walk_{style}", text.replace(walk_models_path(), "walk_models.py"))


def walk_models_path() -> str:
    from headwise.doctor.places import place
    from see.walk import walk_models

    return place(str(walk_models.__file__), 0).removesuffix(":0")


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_what_cannot_be_recorded_is_an_error_in_one_line() -> None:
    traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4))
    for model, given, told in (
        (traced, torch.ones(2, 4), "torch.jit has traced"),
        (nn.Linear(4, 4), torch.eye(4).to_sparse(), "sparse"),
    ):
        with pytest.raises(ConfigError, match=told) as error:
            trace(model, given)
        assert "\n" not in str(error.value)
