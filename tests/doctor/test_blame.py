"""The line that is blamed is the one where the mistake was written, in small models where it is known."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.blame import (
    applied_at,
    callers,
    constructed,
    dropped_in,
    leaking_op,
    line_in,
    made_places,
    maker,
    mask_at,
    mixing_op,
    origin,
    related,
    watched,
)
from headwise.doctor.check import Place
from headwise.doctor.made import Making
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject
from headwise.doctor.trace import Op

V, D = 17, 8


def line_of(mark: str) -> int:
    lines = linecache.getlines(__file__)
    return next(n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}"))


def at(place: Place | None) -> int:
    assert place is not None and place.file == __file__
    return place.line


def line(op: Op | None) -> int:
    assert op is not None
    return at(op.place)


def triangle(length: int) -> Tensor:
    ones = torch.ones(length, length)
    keep = ones.tril()  # MAKES
    return keep.bool()


def attend(x: Tensor, keep: Tensor, unused: Tensor | None = None) -> Tensor:
    scores = x @ x.mT / D**0.5
    scores = scores.masked_fill(~keep, float("-inf"))  # HIDES
    weights = scores.softmax(-1)
    return weights @ x


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(D)  # NORM
        self.register_buffer("table", torch.randn(20, D))  # TABLE

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        return x + attend(self.norm(x), keep, unused=x) + self.table[: x.shape[1]]  # LAYER


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(V, D)
        self.layers = nn.ModuleList([Layer(), Layer()])  # LAYERS
        self.stack = nn.Sequential(nn.Linear(D, D), nn.ReLU())  # STACK
        self.head = nn.Linear(D, V)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        keep = triangle(ids.shape[1])
        for layer in self.layers:
            x = layer(x, keep)
        return self.head(self.stack(self.change(x)))

    def change(self, x: Tensor) -> Tensor:
        return x


class LooksAhead(Model):
    def change(self, x: Tensor) -> Tensor:
        y = x * 2
        shifted = torch.cat([x[:, 1:], x[:, :1]], 1)  # AHEAD
        return y + shifted


class AveragesAll(Model):
    def change(self, x: Tensor) -> Tensor:
        total = x.mean(1, keepdim=True)  # the axis of time is gone here: nothing can be told of it
        spread = total * 2
        return x + spread  # AVERAGE


class MixesRows(Model):
    def change(self, x: Tensor) -> Tensor:
        y = x.sin()
        return y - y.mean(0)  # ROWS


def probe_of(model: nn.Module, making: Making | None = None, **more: Any) -> Probe:
    given = {"kind": "decoder", **more}
    inputs = given.pop("inputs", None)
    return Probe(
        adapt(Subject(model, torch.randint(1, V, (6, 20)) if inputs is None else inputs, **given)), making
    )


def test_the_line_where_the_future_comes_in() -> None:
    assert line(leaking_op(probe_of(LooksAhead()))) == line_of("AHEAD")
    assert leaking_op(probe_of(Model())) is None


def test_it_is_traced_back_through_values_of_which_nothing_can_be_told() -> None:
    op = leaking_op(probe_of(AveragesAll()))
    assert op is not None and op.name == "mean"
    assert line(op) == line_of("AVERAGE") - 2


def test_the_line_where_rows_meet() -> None:
    op = mixing_op(probe_of(MixesRows()))
    assert line(op) == line_of("ROWS") and op is not None and op.name == "mean"
    assert mixing_op(probe_of(Model())) is None


def test_the_line_where_a_mask_is_put_on_and_where_it_was_made() -> None:
    probe = probe_of(Model())
    first, second = probe.sites
    found = mask_at(first)
    assert found is not None
    assert at(applied_at(first)) == line_of("HIDES") == at(applied_at(second))
    op, mask = found
    assert line(op) == line_of("HIDES")
    assert [at(place) for place in origin(probe, mask)][:3] == [
        line_of("HIDES"),
        line_of("MAKES") + 1,
        line_of("MAKES"),
    ]
    # what hides is turned round where it is put on; what it was made of, is made elsewhere
    assert at(maker(probe, mask)) == line_of("HIDES")
    turned = mask.op
    assert turned is not None
    assert at(maker(probe, turned.inputs[0])) == line_of("MAKES")


def test_a_site_without_a_mask_is_blamed_on_its_softmax() -> None:
    class Bare(Model):
        def change(self, x: Tensor) -> Tensor:
            return (x @ x.mT).softmax(-1) @ x  # BARE

    site = probe_of(Bare()).sites[-1]
    assert mask_at(site) is None and at(applied_at(site)) == line_of("BARE")


def test_a_mask_of_the_ids_leads_past_the_ids_themselves() -> None:
    class Padded(Model):
        def change(self, x: Tensor) -> Tensor:
            return attend(x, self.keep)

        def forward(self, ids: Tensor) -> Tensor:
            self.keep = (ids != 0)[:, None]  # PADS
            return super().forward(ids)

    with Making() as making:
        tokens = torch.randint(1, V, (6, 20))
        model = Padded()
    probe = probe_of(model, making, inputs=tokens)
    mask = mask_at(probe.sites[-1])
    assert mask is not None
    lines = [at(place) for place in origin(probe, mask[1])]
    assert line_of("PADS") in lines and lines[0] == line_of("HIDES") and len(lines) == 2


def test_what_was_made_before_the_run_is_looked_up_in_the_making() -> None:
    with Making() as making:
        tokens = torch.randint(1, V, (6, 20))  # TOKENS
        targets = tokens.roll(-1, 1)  # TARGETS
        model = Model()
    probe = probe_of(
        model, making, inputs=tokens, targets=targets, loss=lambda out, goal: out.sum() + goal.sum()
    )
    leaves = {value.name: value for value in probe.base.record.values if value.op is None}
    assert [at(p) for p in made_places(probe, leaves["buffer layers.0.table"])] == [line_of("TABLE")]
    assert [at(p) for p in made_places(probe, leaves["input 0"])] == [line_of("TOKENS")]
    record, _, _ = probe.recorded_loss()
    goal = next(value for value in record.values if value.name == "targets")
    assert [at(p) for p in made_places(probe, goal)] == [line_of("TARGETS")]
    weight = leaves["parameter head.weight"]
    assert at(made_places(probe, weight)[0]) == line_of("STACK") + 1
    assert made_places(probe_of(model), leaves["input 0"]) == []  # nobody watched


@pytest.mark.parametrize("watch", [True, False])
def test_the_line_where_a_module_was_constructed(watch: bool) -> None:
    with Making() as making:
        model = Model()
    probe = probe_of(model, making if watch else None)
    assert at(constructed(probe, "layers.1.norm")) == line_of("NORM")
    assert at(constructed(probe, "layers.1")) == line_of("LAYERS")
    assert at(constructed(probe, "stack.0")) == line_of("STACK")
    assert constructed(probe, "") is None


def test_every_call_of_a_users_function_is_watched() -> None:
    probe = probe_of(Model())
    found = watched(probe)
    names = [call.place.function for call in found]
    assert names.count("attend") == 2 and names.count("triangle") == 1 and "Model.forward" in names
    values = set(probe.base.record.values)
    assert all(value in values for call in found for value in call.given.values())


def test_a_tensor_that_nobody_reads_fell_in_the_innermost_call_that_got_it() -> None:
    class Forgets(Model):
        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            return outer(super().forward(ids), mask[:, None])

    tokens = torch.randint(1, V, (6, 20))
    probe = probe_of(Forgets(), inputs=(tokens, tokens != 0), pad_id=0)
    mask = next(value for value in probe.base.record.values if value.name == "input 1")
    call = dropped_in(probe, mask)
    assert call is not None and call.place.function == "inner" and list(call.given) == ["x", "mask"]
    assert dropped_in(probe, probe.base.logits_value) is None  # it was handed to nobody


def outer(x: Tensor, mask: Tensor) -> Tensor:
    return inner(x, mask=mask)


def inner(x: Tensor, mask: Tensor) -> Tensor:
    return x * 1


def test_the_line_at_which_a_function_was() -> None:
    probe = probe_of(Model())
    op = probe.sites[1].softmax
    outside = Place(__file__, 1, "Layer.forward")
    assert at(line_in(op, outside)) == line_of("LAYER")
    assert line_in(op, Place(__file__, 1, "nobody")) is None
    assert [place.function for place in callers(op)] == ["attend", "Layer.forward", "Model.forward"]


def test_related_lines_come_once_and_without_the_primary_one() -> None:
    one, two, three = (Place("a.py", number) for number in (1, 2, 3))
    lines = list(related([two, None, one, three, two, Place("a.py", 3, "f")], "here", but=one))
    assert lines == [(two, "here"), (three, "here")]
    assert list(related([one, one], "x")) == [(one, "x")] and list(related([], "x", one)) == []
