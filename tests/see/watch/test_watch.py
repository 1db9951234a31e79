"""The law of the watch: nothing of what is trained changes. And what it sees in models of many hands."""

from __future__ import annotations

import copy
import inspect
import io
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.errors import ConfigError, StorageError
from headwise.see.watch.watch import watch
from see.watch.loops import MODELS, VOCAB, Fused, batch, loss_of, trained


def states(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [t for held in optimizer.state.values() for t in held.values() if isinstance(t, Tensor)]


@pytest.mark.parametrize("name", MODELS)
def test_a_watched_training_ends_with_the_same_bits(name: str) -> None:
    plain, with_plain, _ = trained(MODELS[name], 62)
    ends = torch.get_rng_state(), np.random.get_state()[1].tolist()  # the type checker draws from Python's
    seen, with_seen, watched = trained(MODELS[name], 62, every=10)
    assert watched is not None
    assert [sample.step for sample in watched.history] == [1, 10, 20, 30, 40, 50, 60]
    assert all(sample.attentions for sample in watched.history)
    mine, other = plain.state_dict(), seen.state_dict()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == []
    assert all(torch.equal(a, b) for a, b in zip(states(with_plain), states(with_seen), strict=True))
    assert torch.equal(ends[0], torch.get_rng_state())
    assert ends[1] == np.random.get_state()[1].tolist()
    assert [f for f in watched.findings if f.severity != "note"] == []
    assert [note for note in watched.notes if "failed" in note] == []


def test_what_a_pass_leaves_behind_is_that_of_the_training_alone() -> None:
    plain, _, _ = trained(Fused, 12)
    seen, _, _ = trained(Fused, 12, every=3)
    assert isinstance(plain, Fused) and isinstance(seen, Fused)
    assert seen.calls == plain.calls == seen.meter.calls == 12
    assert seen.lengths == plain.lengths
    assert len(seen.meter.kept) == 2
    assert torch.equal(seen.own.get_state(), plain.own.get_state())
    assert torch.equal(seen.batch_norm.running_var, plain.batch_norm.running_var)


def test_another_random_state_is_another_end() -> None:
    """The comparison above has teeth: one draw more, and no weight is the same."""
    plain, _, _ = trained(Fused, 12)
    other, _, _ = trained(Fused, 12, change=lambda _m, step: torch.rand(1) if step == 5 else None)
    assert not torch.equal(plain.head.weight, other.head.weight)


def test_no_hook_is_left_and_a_copy_takes_none_along() -> None:
    torch.manual_seed(0)
    model = Fused()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    with watch(model, optimizer, 2, live=False, budget=None):
        for _ in range(3):
            loss_of(model, batch(generator)).backward()
            optimizer.step()
        assert model._forward_pre_hooks
        average = copy.deepcopy(model)
        read = pickle.loads(pickle.dumps(nn.Linear(2, 2)))
        del model.own  # a generator cannot be pickled
        pickle.dump(model, io.BytesIO())
        model.own = torch.Generator()
    assert average(batch(generator)).shape == (4, 9, VOCAB) and read is not None
    for module in model.modules():
        assert not module._forward_pre_hooks and not module._forward_hooks
    from torch.optim import optimizer as torchs

    assert not torchs._global_optimizer_pre_hooks and not torchs._global_optimizer_post_hooks


def test_the_numbers_are_those_of_the_model() -> None:
    _, _, watched = trained(MODELS["by hand"], 1, every=1)
    torch.manual_seed(5)
    model = MODELS["by hand"]()
    ids = batch(torch.Generator().manual_seed(7))[:, :-1][[0, 3]]
    normed = model.normed(model.tokens(ids))
    q, k = (part(normed).unflatten(-1, (3, 4)).transpose(1, 2) for part in (model.q, model.k))
    scores = (q @ k.mT / 2).masked_fill(torch.ones(8, 8).triu(1).bool(), float("-inf"))
    weights = scores.softmax(-1)  # [B, H, T, T]
    counted = torch.arange(2, 9).float().log()
    entropy = -torch.xlogy(weights, weights).sum(-1)[:, :, 1:] / counted
    assert watched is not None
    sample = watched.history[0]
    q, v = (part(normed).detach() for part in (model.q, model.v))
    (seen,) = sample.attentions.values()
    expected = entropy.mean((0, 2)).tolist()
    assert [head.entropy for head in seen.heads] == pytest.approx(expected, rel=1e-5)
    assert seen.q == pytest.approx(float(q.std(correction=0)), rel=1e-5)
    assert seen.v == pytest.approx(float(v.std(correction=0)), rel=1e-5)
    (norm,) = sample.norms.values()
    assert norm.std == pytest.approx(float(normed.detach().std(correction=0)), rel=1e-5)
    assert seen.projection is not None
    generator = torch.Generator().manual_seed(7)
    loss = loss_of(model, batch(generator))
    loss.backward()
    length = sum(float(p.grad.square().sum()) for p in model.parameters()) ** 0.5
    assert sample.gradient == pytest.approx(length, rel=1e-5)
    assert sample.loss == pytest.approx(loss.item(), rel=1e-6)


def test_the_first_nan_is_told_with_its_line() -> None:
    class Bad(Fused):
        scale = torch.ones(())

        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids) * torch.log(self.scale)  # HERE

    def change(model: nn.Module, step: int) -> None:
        model.scale = torch.tensor(-1.0 if step == 7 else 2.0)

    said: list[str] = []
    _, _, watched = trained(Bad, 8, every=5, change=change, say=said.append)
    assert watched is not None and watched.not_finite is not None
    found = watched.not_finite
    assert (found.step, found.phase, found.operation) == (7, "forward", "log")
    assert found.operands == "[] (-1 to -1)"
    assert "HERE" in found.where
    assert len(said) == 1 and "HW901" in said[0] and "HERE" in said[0]


def test_a_rate_that_is_too_high_is_told() -> None:
    _, _, watched = trained(MODELS["fused"], 30, every=5, rate=1.0)
    assert watched is not None
    assert "HW702" in {f.check for f in watched.findings if f.severity != "note"}


def test_a_norm_with_an_eps_that_damps_is_told() -> None:
    def make() -> nn.Module:
        model = Fused()
        model.blocks[0].n1.eps = 100.0
        return model

    _, _, watched = trained(make, 3, every=2)
    assert watched is not None
    (found,) = [f for f in watched.findings if f.severity == "warning"]
    assert found.check == "HW410" and "blocks.0.n1" in found.what


def test_parameters_that_no_optimizer_holds_are_told() -> None:
    torch.manual_seed(0)
    model = Fused()
    optimizer = torch.optim.SGD(model.blocks.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    with watch(model, every=10, live=False, budget=None, say=lambda _: None) as watched:
        for _ in range(62):
            optimizer.zero_grad()
            loss_of(model, batch(generator)).backward()
            optimizer.step()
    (found,) = [f for f in watched.findings if f.check == "HW604"]
    assert (found.step, found.severity) == (60, "warning") and "tokens.weight" in found.what


def test_gradients_gathered_over_several_batches_are_one_step() -> None:
    torch.manual_seed(0)
    model = Fused()
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(1)
    with watch(model, every=2, live=False, budget=None) as watched:
        for number in range(12):
            loss_of(model, batch(generator)).backward()
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
    assert watched.step == 4
    assert [sample.step for sample in watched.history] == [1, 2, 4]


def test_a_loop_that_calls_parts_of_the_model_is_seen() -> None:
    torch.manual_seed(0)
    model = Fused()
    optimizer = torch.optim.Adam(model.parameters())
    ids = batch(torch.Generator().manual_seed(1))
    with watch(model, optimizer, 1, live=False, budget=None) as watched:
        x = model.tokens(ids)
        for block in model.blocks:
            x = block(x)
        F.cross_entropy(model.head(model.norm(x)).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
    assert set(watched.history[0].attentions) == {"blocks.0", "blocks.1"}
    assert all(len(each.heads) == 2 for each in watched.history[0].attentions.values())


def test_a_method_that_the_loop_calls_is_seen_where_it_is_told() -> None:
    torch.manual_seed(0)
    own = MODELS["own"]().model
    optimizer = torch.optim.Adam(own.parameters())
    ids = batch(torch.Generator().manual_seed(1))
    with watch(own, optimizer, 1, live=False, budget=None) as watched:
        hidden = watched.called(own.hidden)
        hidden(ids, ids).sum().backward()
        optimizer.step()
    assert len(watched.history[0].attentions) == 3


def test_a_compiled_model_is_seen_through_its_own_code() -> None:
    model = MODELS["by hand"]()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(1)
    with watch(compiled, optimizer, 1, live=False, budget=None) as watched:
        for _ in range(2):
            loss_of(compiled, batch(generator)).backward()
            optimizer.step()
    assert len(watched.history[-1].attentions) == 1
    assert any("compiled" in note for note in watched.notes)


def test_validation_between_steps_is_not_looked_at() -> None:
    torch.manual_seed(0)
    model = Fused()
    optimizer = torch.optim.Adam(model.parameters())
    generator = torch.Generator().manual_seed(1)
    with watch(model, optimizer, 1, live=False, budget=None) as watched:
        with torch.no_grad():
            model.eval()(batch(generator))
        assert watched._pending is not None and not watched._pending.attentions
        model.train()


def test_measuring_keeps_to_its_budget() -> None:
    _, _, watched = trained(Fused, 60, every=1, budget=0.03)
    assert watched is not None
    assert 1 <= len(watched.history) < 30  # each step is short: measuring all would take most of the time
    assert watched.step == 60


def test_a_report_that_cannot_be_written_is_told_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    model = Fused()
    seen = watch(model, report=tmp_path / "file" / "report.html", live=False)
    with pytest.raises(StorageError, match="cannot write"):
        seen.start()
    assert not model._forward_pre_hooks


def test_a_model_of_torch_jit_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"torch\.jit"):
        watch(scripted)


@pytest.mark.parametrize(
    "settings",
    [
        {"every": 2.5},
        {"every": True},
        {"step": -1},
        {"budget": "x"},
        {"report": 3},
        {"say": "x"},
        {"optimizer": []},
    ],
)
def test_arguments_that_cannot_work(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        inspect.unwrap(watch)(nn.Linear(2, 2), **settings)


def test_whole_numbers_of_numpy_are_such() -> None:
    assert watch(nn.Linear(2, 2), every=np.int64(3)).every == 3


def test_a_report_is_left_by_a_loop_that_fails(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Fused()
    with pytest.raises(RuntimeError, match="mine"), watch(model, report=tmp_path / "report.html", live=False):
        raise RuntimeError("mine")
    assert "headwise watch" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": 0}, "every must be a number of steps, 1 or more: got 0"),
        ({"every": True}, "every must be a number of steps, 1 or more: got True"),
        ({"budget": 0.0}, "budget must be a share of the time above 0"),
        ({"board": 3}, "board must be a SummaryWriter or a directory: got int"),
    ],
)
def test_arguments_that_cannot_work_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        watch(Fused(), **{"live": False, **settings})
