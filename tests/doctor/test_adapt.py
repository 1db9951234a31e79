"""What a stranger's model reads, gives and claims to be is told from the data, never from its mask alone."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import Adapted, adapt, flatten, logits_of, rebuild, shift_share, twin, unwrap
from headwise.doctor.subject import Subject
from headwise.errors import ConfigError


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 9)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.head(self.words(input_ids))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 4)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None
    ) -> Tensor:
        return self.words(tgt) + self.words(src).mean(1, keepdim=True)


IDS = torch.tensor([[3, 4, 5, 6, 0], [5, 3, 7, 0, 0], [4, 4, 6, 8, 2]])
NEXT = torch.tensor([[4, 5, 6, 0, -100], [3, 7, 0, -100, -100], [4, 6, 8, 2, -100]])


def of(model: Any, inputs: Any, **more: Any) -> Adapted:
    return adapt(Subject(model, inputs, **more))


def roles(adapted: Adapted) -> list[tuple[str, str]]:
    return [(leaf.name, leaf.role) for leaf in adapted.leaves]


# Inputs


@pytest.mark.parametrize(
    "mask",
    [IDS != 0, (IDS != 0).long(), (IDS != 0).float(), torch.zeros(3, 5).masked_fill(IDS == 0, float("-inf"))],
    ids=["bool", "ones", "float ones", "additive"],
)
@pytest.mark.parametrize("named", [True, False])
def test_ids_and_their_mask_are_told_apart(mask: Tensor, named: bool) -> None:
    inputs = {"input_ids": IDS, "attention_mask": mask} if named else (IDS, mask)
    adapted = of(Words(), inputs)
    assert roles(adapted) == [("input_ids", "ids"), ("attention_mask", "mask")]
    (stream,) = adapted.streams
    assert (stream.name, stream.leaf, stream.is_ids, stream.keep_leaf) == ("tokens", 0, True, 1)
    additive = mask.is_floating_point() and bool((mask < 0).any())
    assert stream.keep_is == (0.0 if additive else 1.0)


def test_a_mask_that_marks_pads_is_the_other_way_round() -> None:
    assert of(Words(), (IDS, IDS == 0), pad_id=0).streams[0].keep_is == 0.0
    assert of(Words(), (IDS, IDS != 0), pad_id=0).streams[0].keep_is == 1.0
    named = {"ids": IDS, "padding_mask": IDS == 0}  # its name and type, where no pad id tells
    assert of(Words(), named, call=lambda model, ids, padding_mask: model(ids)).streams[0].keep_is == 0.0


def test_a_mask_without_a_name_is_known_by_what_it_holds() -> None:
    def call(model: nn.Module, a: Tensor, b: Tensor) -> Tensor:
        return model(a)

    adapted = of(Words(), (IDS, (IDS != 0).long()), call=call)
    assert roles(adapted) == [("a", "ids"), ("b", "mask")]
    # ids of two words only are no mask where nothing else is wider
    assert roles(of(Words(), (IDS % 2,)))[0][1] == "ids"


@pytest.mark.parametrize("name", ["token_type_ids", "position_ids", "segment_labels"])
def test_other_inputs_are_not_taken_for_the_sequence(name: str) -> None:
    def call(model: nn.Module, **given: Tensor) -> Tensor:
        return model(given["input_ids"])

    adapted = of(Words(), {"input_ids": IDS, name: torch.zeros_like(IDS)}, call=call)
    assert adapted.leaves[1].role in {"other", "labels"}
    assert [stream.name for stream in adapted.streams] == ["tokens"]


def test_two_sequences_are_source_and_target_in_either_order() -> None:
    one = of(Pair(), (IDS, IDS[:, :4]))
    two = of(Pair(), {"tgt": IDS[:, :4], "src": IDS})
    assert [(s.name, s.leaf) for s in one.streams] == [("source", 0), ("target", 1)]
    assert [(s.name, s.leaf) for s in two.streams] == [("source", 1), ("target", 0)]
    for adapted in (one, two):
        assert adapted.kind == "encoder-decoder" and adapted.main is adapted.streams[1]
        assert adapted.source is adapted.streams[0]


def test_each_sequence_has_its_own_mask() -> None:
    tgt = IDS[:, :4]
    adapted = of(Pair(), {"src": IDS, "tgt": tgt, "src_mask": IDS != 0, "tgt_mask": tgt != 0})
    assert [stream.keep_leaf for stream in adapted.streams] == [2, 3]


def test_images_and_series_are_floats() -> None:
    model = nn.Linear(4, 2)
    assert roles(of(model, torch.randn(3, 7, 4))) == [("input", "floats")]
    assert not of(model, torch.randn(3, 7, 4)).streams[0].is_ids


def test_nothing_to_change_is_a_mistake_that_says_so() -> None:
    with pytest.raises(ConfigError, match="inputs must hold at least one tensor: got str"):
        of(Words(), "hello")
    with pytest.raises(ConfigError, match=r"torch.nn.Module or a callable: got int"):
        of(3, IDS)


@pytest.mark.parametrize(
    "tree",
    [
        IDS,
        (IDS, NEXT),
        [IDS, (NEXT,)],
        {"a": IDS, "b": {"c": NEXT, "d": None}},
        UserDict(a=IDS, b=NEXT),
        (IDS, "x", 3),
    ],
    ids=["tensor", "tuple", "list", "dict", "UserDict", "others"],
)
def test_flatten_and_rebuild_are_inverse(tree: Any) -> None:
    leaves = flatten(tree)
    again = rebuild(tree, [leaf + 1 for leaf in leaves])
    assert [t.tolist() for t in flatten(again)] == [(leaf + 1).tolist() for leaf in leaves]
    if isinstance(tree, tuple):
        assert len(again) == len(tree) and [x for x in again if not isinstance(x, Tensor)] == [
            x for x in tree if not isinstance(x, Tensor)
        ]


@pytest.mark.parametrize("form", [(IDS,), IDS, {"input_ids": IDS}, UserDict(input_ids=IDS)])
def test_the_model_is_called_in_the_form_that_was_given(form: Any) -> None:
    model = Words()
    adapted = of(model, form)
    assert torch.equal(adapted.call(model, tuple(flatten(form))), model(IDS))


def test_the_users_call_gets_the_model_first() -> None:
    def call(model: nn.Module, ids: Tensor, scale: Tensor) -> Tensor:
        return model(ids) * scale

    model, scale = Words(), torch.tensor(2.0)
    adapted = of(model, (IDS, scale), call=call)
    assert roles(adapted) == [("ids", "ids"), ("scale", "other")]
    assert torch.equal(adapted.call(model, (IDS, scale)), model(IDS) * 2)


# Kind


def test_the_kind_that_is_given_counts() -> None:
    for kind in ("decoder", "encoder", "encoder-decoder"):
        adapted = of(Words(), IDS, kind=kind, targets=NEXT)
        assert (adapted.kind, adapted.kind_from) == (kind, "given")
    assert [s.name for s in of(Pair(), (IDS, IDS), kind="encoder").streams] == ["tokens"]


def test_the_kind_is_told_by_targets_generate_or_a_second_input() -> None:
    assert of(Words(), IDS, targets=NEXT).kind == "decoder"
    assert of(Words(), IDS, generate=lambda model, ids, n: ids).kind == "decoder"
    assert of(Pair(), (IDS, IDS)).kind_from == "a second input"


def test_the_kind_is_never_told_by_the_mask() -> None:
    """A decoder that forgot its mask must not pass as an encoder, nor an encoder with one as a decoder."""

    class Masked(Words):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            x = self.words(input_ids)
            scores = (x @ x.mT).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf)
            return self.head(scores.softmax(-1) @ x)

    for model in (Masked(), Words()):
        adapted = of(model, (IDS, IDS != 0), targets=IDS)
        assert (adapted.kind, adapted.kind_from) == (None, "nothing decides")


def test_targets_two_steps_on_decide_nothing() -> None:
    assert of(Words(), IDS, targets=torch.cat([IDS[:, 2:], IDS[:, :2]], 1)).kind is None


def test_a_configuration_may_claim_a_kind() -> None:
    model = Words()
    model.config = SimpleNamespace(is_encoder_decoder=True)
    assert (of(model, IDS).kind, of(model, IDS).kind_from) == ("encoder-decoder", "its configuration")
    named = type("WordsForCausalLM", (Words,), {})()
    assert of(named, IDS).kind == "decoder"


# Layout


def test_the_layout_is_told_by_where_targets_are_shifted() -> None:
    assert of(Words(), IDS, targets=NEXT).layout == "batch-first"
    turned = of(Words(), IDS.T.contiguous(), targets=NEXT.T.contiguous())
    assert (turned.layout, turned.batch_axis, turned.kind) == ("time-major", 1, "decoder")


def test_or_by_where_padding_gathers() -> None:
    ids = torch.tensor([[3, 4, 5, 6, 0], [5, 3, 7, 0, 0], [4, 4, 0, 0, 0], [4, 4, 6, 8, 2]])
    assert of(Words(), ids, pad_id=0).layout == "batch-first"
    assert of(Words(), ids.T.contiguous(), pad_id=0).layout == "time-major"


def test_or_by_two_sequences_that_have_as_many_rows_only_along_the_second_axis() -> None:
    def both(source: int, target: int, *, turned: bool) -> str:
        pair = [torch.ones(2, source, dtype=torch.long), torch.ones(2, target, dtype=torch.long)]
        return of(Pair(), tuple(each.T.contiguous() if turned else each for each in pair)).layout

    assert [both(9, 7, turned=turned) for turned in (True, False)] == ["time-major", "batch-first"]
    assert both(7, 7, turned=True) == "batch-first"  # which may be either


def test_where_nothing_tells_the_batch_comes_first_unless_it_is_given() -> None:
    assert of(Words(), IDS.clamp(min=1)).layout == "batch-first"
    assert of(Words(), IDS, layout="time-major").layout == "time-major"


def test_shift_share_counts_labels_along_an_axis() -> None:
    assert shift_share(IDS, NEXT, 1) == 1.0 and shift_share(IDS, IDS, 0) == 1.0
    assert shift_share(IDS.T, NEXT.T, 1, axis=0) == 1.0
    assert shift_share(IDS, IDS, 1) < 0.5 and shift_share(IDS, IDS, 5) == 0.0
    assert shift_share(IDS, torch.full_like(IDS, -100), 1) == 0.0


# Output


@dataclass
class Output:
    loss: Tensor | None = None
    logits: Tensor | None = None
    last_hidden_state: Tensor | None = None


SCORES, STATES = torch.randn(3, 5, 9), torch.randn(3, 5, 4)


@pytest.mark.parametrize(
    "output",
    [
        SCORES,
        (SCORES, STATES),
        [torch.tensor(3.0), SCORES],  # the loss first, as transformers' tuples have it
        {"loss": torch.tensor(3.0), "logits": SCORES, "last_hidden_state": STATES},
        Output(loss=torch.tensor(3.0), logits=SCORES, last_hidden_state=STATES),
        OrderedDict(loss=torch.tensor(3.0), scores=SCORES),
        Output(last_hidden_state=SCORES),
        {"out": {"nested": SCORES}},
        (None, (SCORES,)),
        SimpleNamespace(prediction_logits=SCORES),
    ],
    ids=lambda output: type(output).__name__,
)
def test_the_scores_are_found_in_whatever_comes_out(output: Any) -> None:
    assert logits_of(output) is SCORES


@pytest.mark.parametrize("output", [None, 3, "text", (), {}, SimpleNamespace()])
def test_or_there_are_none(output: Any) -> None:
    assert logits_of(output) is None


# Wrappers and copies


def test_wrappers_are_taken_off_and_said_so() -> None:
    model = Words()
    assert unwrap(model) == (model, [])
    compiled = torch.compile(model, backend="eager")
    for wrapped, names in (
        (compiled, ["OptimizedModule"]),
        (nn.DataParallel(model), ["DataParallel"]),
        (nn.DataParallel(compiled), ["DataParallel", "OptimizedModule"]),
    ):
        inner, notes = unwrap(wrapped)
        assert inner is model and len(notes) == len(names)
        assert all(name in note for name, note in zip(names, notes, strict=True))


class Noam(torch.optim.Adam):
    """Sets its own rate, and remembers more than torch's optimizers do."""

    def __init__(self, parameters: Any, width: int) -> None:
        super().__init__(parameters, lr=0.0)
        self.width, self.count, self.kept = (
            width,
            0,
            [p for group in self.param_groups for p in group["params"]],
        )

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.count += 1
        for group in self.param_groups:
            group["lr"] = self.width**-0.5 * self.count
        super().step()


class Wrapper:
    """The annotated Transformer's: no optimizer of torch's, but it holds one."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.count = optimizer, 0

    def step(self) -> None:
        self.count += 1
        self.optimizer.step()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_twin_trains_alone(wrapped: bool) -> None:
    model = Words()
    optimizer: Any = Noam(model.parameters(), 4)
    if wrapped:
        optimizer = Wrapper(optimizer)
    else:
        model(IDS).sum().backward()
        optimizer.step()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    other, theirs = twin(model, optimizer)
    assert type(theirs) is type(optimizer) and theirs.count == optimizer.count
    inner = theirs.optimizer if wrapped else theirs
    assert inner.width == 4
    mine = set(other.parameters())
    assert {p for group in inner.param_groups for p in group["params"]} == mine == set(inner.kept)
    assert set(inner.state) <= mine and (wrapped or set(inner.state))
    other(IDS).sum().backward()
    theirs.step()
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert any(not torch.equal(p, before[name]) for name, p in other.named_parameters())
    assert optimizer.count == theirs.count - 1


def test_a_twin_takes_no_gradients_and_no_computed_tensors() -> None:
    """A module that keeps its last attention map, as the annotated Transformer's does, can be copied."""
    model = Words()
    model.map = model(IDS)
    model.map.sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    other, _ = twin(model, None)
    assert all(p.grad is None for p in other.parameters())
    assert all(p.grad is grads[name] for name, p in model.named_parameters())
    assert torch.equal(other.map, model.map) and other.map.is_leaf and not model.map.is_leaf


def test_tied_weights_are_tied_in_the_twin() -> None:
    model = Words()
    model.head.weight = model.words.weight
    other, _ = twin(model, None)
    assert other.head.weight is other.words.weight and other.head.weight is not model.head.weight
