"""What a probe says of a model is so: on models whose every influence is known by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.check import NotApplicable
from headwise.doctor.needs import KNOWN
from headwise.doctor.probe import Moved, Probe, Run, differs
from headwise.doctor.subject import Subject

V, D = 17, 8


class Model(nn.Module):
    """Embeds, lets positions see what `keep` [T, T] says they may, reads out."""

    def __init__(self, keep: str = "causal", length: int | None = None) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(V, D), nn.Linear(D, V)
        self.keep, self.length = keep, length

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        if self.length is not None and ids.shape[1] != self.length:
            raise ValueError(f"{self.length} positions, always")
        return self.head(self.mix(x))

    def mix(self, x: Tensor) -> Tensor:
        ones = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype)
        keep = {
            "causal": ones.tril(),
            "ahead": ones.tril(1),
            "all": ones,
            "self": ones.tril().triu(),
            "two back": ones.tril().triu(-2),
        }[self.keep]
        return torch.tanh(keep @ x)


class RowMixing(Model):
    """Each row looks at the one before it."""

    def mix(self, x: Tensor) -> Tensor:
        return x + 0.5 * x.roll(1, 0)


class Normed(Model):
    """Statistics over the whole batch."""

    def mix(self, x: Tensor) -> Tensor:
        return x / x.std()


def ids(rows: int = 6, length: int = 20) -> Tensor:
    return torch.randint(1, V, (rows, length))


def probe_of(model: nn.Module, inputs: Any = None, **more: Any) -> Probe:
    return Probe(adapt(Subject(model, ids() if inputs is None else inputs, **more)))


def bits(probe: Probe, seen: dict[int, Tensor]) -> Tensor:
    return probe.rows_first(seen[probe.base.logits_value.index])


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


def test_every_value_can_be_compared() -> None:
    probe = probe_of(Model())
    moved = probe.compare(probe.change_after(3))
    embedded = next(op.out for op in probe.base.record.ops if op.name == "embedding")
    assert moved(embedded)[:, 4:].all() and not moved(embedded)[:, :4].any()
    assert moved.by(embedded) > 0
    table = embedded.op.inputs[0] if embedded.op else embedded
    assert not moved(table).any() and moved.by(table) == 0


def test_runs_that_part_are_compared_up_to_there() -> None:
    class Branches(Model):
        def mix(self, x: Tensor) -> Tensor:
            return x.sin() if bool(x.sum() > x.sum() + 1) or self.turned else x.cos()

        turned = False

    model = Branches()
    probe = probe_of(model)
    before = probe.base
    probe.model.turned = True
    moved = Moved(before, probe.run(probe.batch), probe.eps)
    values = before.record.values
    assert moved.aligned < len(values) and not moved(values[-1]).any() and moved.by(values[-1]) == 0


def test_the_same_twice_is_noise_and_dropout_is_seen_in_train_only() -> None:
    class Drops(Model):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def mix(self, x: Tensor) -> Tensor:
            return self.drop(super().mix(x))

    probe = probe_of(Drops())
    one, two = (probe.run(probe.batch, train=True, seed=seed) for seed in (0, 0))
    assert torch.equal(one.logits, two.logits)  # the same random numbers
    assert not torch.equal(one.logits, probe.run(probe.batch, train=True, seed=1).logits)
    assert torch.equal(probe.run(probe.batch).logits, probe.base.logits)
    assert not probe.model.training or probe.run(probe.batch).logits is not None
    bare = probe.run(probe.batch, record=False)
    assert torch.equal(bare.logits, probe.base.logits) and not bare.record.ops


def test_infinities_and_nan_at_the_same_place_are_no_difference() -> None:
    inf, nan = float("inf"), float("nan")
    a = torch.tensor([1.0, inf, nan, -inf, 2.0])
    assert differs(a, a.clone(), 1e-7).tolist() == [False] * 5
    assert differs(a, torch.tensor([1.0, -inf, 0.0, nan, 2.1]), 1e-7).tolist() == [
        False,
        True,
        True,
        True,
        True,
    ]
    assert differs(torch.tensor([1.0]), torch.tensor([1.0 + 1e-6]), 1e-7).tolist() == [False]
    assert differs(torch.ones(2), torch.ones(3), 1e-7).all()
    assert differs(torch.tensor([1, 2]), torch.tensor([1, 3]), 1e-7).tolist() == [False, True]


def test_long_sequences_are_asked_at_some_positions() -> None:
    probe = probe_of(Model(length=50), ids(4, 50))
    assert probe.main is not None
    asked = probe.positions(probe.main)
    assert len(asked) <= 14 and asked[0] == 0 and asked[-1] == 49 and asked == sorted(set(asked))


def test_axes_are_named_by_their_sizes() -> None:
    probe = probe_of(Model())
    assert probe.axes(probe.base.logits_value) == ("B", "T", "")


# Needs


def test_every_need_can_be_asked_of_every_probe() -> None:
    bare, full = probe_of(Model()), probe_of(
        Model(), ids(), kind="decoder", pad_id=0, targets=ids(), loss=lambda out, goal: out.mean(),
        optimizer=torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1), generate=lambda m, p, n: p,
        train_step=lambda m, o, b: None,
    )  # fmt: skip
    missing = {need for need in KNOWN if bare.lacks(frozenset({need})) is not None}
    assert missing == {
        "failure", "kind", "causal", "decoder", "encoder", "encoder-decoder", "encoder-side", "sites",
        "targets", "loss", "optimizer", "generate", "train_step", "padding",
    }  # fmt: skip
    missing = {need for need in KNOWN if full.lacks(frozenset({need})) is not None}
    assert missing == {"failure", "encoder", "encoder-decoder", "encoder-side", "sites"}
    assert full.lacks(frozenset({"encoder"})) == "it is for encoders, and this is decoder"
    assert "give --kind" in (bare.lacks(frozenset({"causal"})) or "")
    assert full.lacks(frozenset({"tokens", "loss", "rows"})) is None


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


def test_a_copy_that_was_let_go_is_made_again() -> None:
    probe = probe_of(Model())
    was = probe.model
    probe.release()
    assert probe.model is not was
    assert torch.equal(probe.run(probe.batch).logits, probe.base.logits)


def test_an_output_without_scores_is_said_so() -> None:
    class Nothing(Model):
        def forward(self, ids: Tensor) -> Any:
            return {"text": "no"}

    probe = probe_of(Nothing())
    assert isinstance(probe.failure, NotApplicable) and "a dict" in str(probe.failure)


def test_a_run_knows_its_logits_also_when_they_were_written_through_a_view() -> None:
    class Masks(Model):
        def forward(self, ids: Tensor) -> Tensor:
            logits = super().forward(ids)
            logits[..., 0] = float("-inf")
            return logits

    probe = probe_of(Masks())
    assert isinstance(probe.base, Run) and probe.base.logits_value.op is not None
    assert torch.isneginf(probe.base.logits_value.tensor[..., 0]).all()
    seen, own = bits(probe, probe.rows_seen), torch.tensor([1 << row for row in range(probe.batch.rows)])
    assert (seen[..., 1:] == own[:, None, None]).all() and (seen[..., 0] == 0).all()
