"""What a probe says of a model is so: on models whose every influence is known by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from doctor.probe_model import D, Model, Normed, RowMixing, V, bits, ids, probe_of


def test_the_base_run_is_the_model_in_double() -> None:
    model = Model()
    probe = probe_of(model, kind="decoder")
    assert probe.dtype == torch.float64 and probe.failure is None
    assert torch.allclose(probe.base.logits, model.double()(probe.batch.leaves[0]), atol=1e-12)
    assert probe.is_sequence and probe.vocab == V and probe.is_causal


def test_a_model_that_refuses_double_is_run_as_it_is() -> None:
    class Single(Model):
        def mix(self, x: Tensor) -> Tensor:
            return x @ torch.eye(D, dtype=torch.float32)

    probe = probe_of(Single())
    assert probe.dtype == torch.float32 and probe.failure is None and probe.base.logits.dtype == torch.float32
    assert probe.eps == torch.finfo(torch.float32).eps


def test_rounding_is_that_of_the_coarsest_type_on_the_way() -> None:
    class Casts(Model):
        def mix(self, x: Tensor) -> Tensor:
            return x.float().tanh().to(x.dtype)

    probe = probe_of(Casts())
    assert probe.dtype == torch.float64 and probe.eps == torch.finfo(torch.float32).eps


def test_all_sizes_of_the_batch_differ() -> None:
    probe = probe_of(Model(), ids(8, 8))
    rows, length = probe.batch.leaves[0].shape
    assert len({rows, length, D, V}) == 4 and rows >= 2 and length >= 5
    assert len({tuple(row) for row in probe.batch.leaves[0].tolist()}) == rows  # no row twice


def test_rows_that_were_too_few_are_made_of_other_tokens() -> None:
    probe = probe_of(Model(), ids(1, 12))
    tokens = probe.batch.leaves[0]
    assert tokens.shape[0] >= 2 and len({tuple(row) for row in tokens.tolist()}) == len(tokens)


def test_source_and_target_have_lengths_of_their_own() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(V, D), nn.Linear(D, V)

        def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
            return self.head(self.words(tgt) + self.words(src).mean(1, keepdim=True))

    probe = probe_of(Pair(), (ids(4, 15), ids(4, 15)))
    source, main = probe.source, probe.main
    assert source is not None and main is not None and probe.kind == "encoder-decoder"
    assert len({probe.batch.rows, probe.batch.length(source), probe.length, D, V}) == 5
    assert (bits(probe, probe.positions_seen(source)) == (1 << probe.batch.length(source)) - 1).all()
    own = bits(probe, probe.positions_seen(main))
    assert (own == 1 << torch.arange(probe.length)[None, :, None]).all()


def test_a_model_of_one_length_is_asked_at_that_length() -> None:
    probe = probe_of(Model(length=20), ids(6, 20), kind="decoder")
    assert probe.failure is None and probe.length == 20 and probe.resize_error is not None
    assert "20 positions, always" in str(probe.resize_error)
    assert probe.batch.rows in {3, 5, 2, 7}


def test_a_model_that_fails_is_kept_with_its_failure() -> None:
    probe = probe_of(Model(length=7), ids(6, 20))
    assert isinstance(probe.failure, ValueError) and probe.failed_record is not None
    assert probe.lacks(frozenset()) == "the model does not run on its batch"
    assert probe.lacks(frozenset({"failure"})) is None and probe.sites == []


def test_padding_is_filled_before_anything_is_asked() -> None:
    tokens = ids()
    tokens[:, 15:] = 0
    probe = probe_of(Model(), tokens, pad_id=0)
    assert not (probe.batch.leaves[0] == 0).any()


# Influence


@pytest.mark.parametrize(
    ("keep", "sees"),
    [
        ("causal", lambda t, s: s <= t),
        ("ahead", lambda t, s: s <= t + 1),
        ("all", lambda t, s: True),
        ("self", lambda t, s: s == t),
        ("two back", lambda t, s: t - 2 <= s <= t),
    ],
)
def test_positions_seen_is_exact(keep: str, sees: Any) -> None:
    probe = probe_of(Model(keep))
    assert probe.main is not None
    seen = bits(probe, probe.positions_seen(probe.main))
    want = torch.tensor([sum(1 << s for s in range(probe.length) if sees(t, s)) for t in range(probe.length)])
    assert (seen == want[None, :, None]).all()
    assert probe.positions_seen(probe.main) is probe.positions_seen(probe.main)  # asked once


def test_rows_seen_is_exact() -> None:
    own = torch.tensor([1 << row for row in range(7)])
    probe = probe_of(Model())
    rows = probe.batch.rows
    assert (bits(probe, probe.rows_seen) == own[:rows, None, None]).all()
    probe = probe_of(RowMixing())
    rows = probe.batch.rows
    assert (bits(probe, probe.rows_seen) == (own[:rows] | own[:rows].roll(1))[:, None, None]).all()
    probe = probe_of(Normed())
    assert (bits(probe, probe.rows_seen) == (1 << probe.batch.rows) - 1).all()


def test_time_major_models_are_asked_along_their_axes() -> None:
    class TimeMajor(Model):
        def mix(self, x: Tensor) -> Tensor:
            return super().mix(x.transpose(0, 1)).transpose(0, 1)

    probe = probe_of(TimeMajor(), ids().T.contiguous(), layout="time-major")
    assert probe.main is not None and probe.is_sequence
    seen = bits(probe, probe.positions_seen(probe.main))
    want = torch.tensor([(1 << (t + 1)) - 1 for t in range(probe.length)])
    assert (seen == want[None, :, None]).all()
    assert (
        bits(probe, probe.rows_seen) == torch.tensor([1 << r for r in range(probe.batch.rows)])[:, None, None]
    ).all()


def test_a_tiny_leak_is_seen_and_rounding_is_not() -> None:
    class Tiny(Model):
        def mix(self, x: Tensor) -> Tensor:
            return super().mix(x) + 1e-9 * x.roll(-1, 1)

    class Rounds(Model):
        def mix(self, x: Tensor) -> Tensor:
            return super().mix(x) + (x.roll(-1, 1) - x.roll(-1, 1)) + 1e-18 * x.roll(-1, 1)

    for kind, leaks in ((Tiny, True), (Rounds, False)):
        probe = probe_of(kind())
        moved = probe.compare(probe.change_after(3))
        assert bool(moved.logits[:, :4].any()) == leaks
        assert probe.noise < 1e-10
        assert moved.logits[:, 4:].any()


def test_long_sequences_are_asked_at_some_positions() -> None:
    probe = probe_of(Model(length=50), ids(4, 50))
    assert probe.main is not None
    asked = probe.positions(probe.main)
    assert len(asked) <= 14 and asked[0] == 0 and asked[-1] == 49 and asked == sorted(set(asked))


def test_axes_are_named_by_their_sizes() -> None:
    probe = probe_of(Model())
    assert probe.axes(probe.base.logits_value) == ("B", "T", "")


# Attention


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(V, D), nn.TransformerDecoderLayer(D, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(D, 2, 16, batch_first=True)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        mask = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        return self.layer(self.words(tgt), self.encoder(self.words(src)), tgt_mask=mask)


def test_sites_know_whose_attention_they_are_and_their_rows() -> None:
    probe = probe_of(Layer(), (ids(4, 15), ids(4, 13)))
    assert [probe.site_kind(site) for site in probe.sites] == ["encoder", "decoder", "cross"]
    assert probe.sites_of("causal") == [probe.sites[1]] and probe.sites_of("cross", "encoder") == [
        probe.sites[0],
        probe.sites[2],
    ]
    for site in probe.sites:
        rows = probe.site_rows(site)
        assert sorted(rows.tolist()) == sorted(list(range(probe.batch.rows)) * 2)
    one = probe_of(Model())
    assert one.sites_of("causal") == []


# Names and memory


def test_memory_asks_once() -> None:
    probe = probe_of(Model())
    asked: list[int] = []
    for _ in range(3):
        assert probe.memo("it", lambda: asked.append(1) or len(asked)) == 1
    assert asked == [1]


def test_parts_of_the_users_model_are_found_by_their_paths() -> None:
    model = Model()
    model.tied = model.words
    probe = probe_of(model)
    assert probe.parameter_tensor("tied.weight") is model.words.weight
    assert probe.module_at("head") is model.head and probe.module_at("") is model
    with pytest.raises(KeyError):
        probe.parameter_tensor("nothing")
