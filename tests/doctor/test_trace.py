"""A recording is what ran: every value as it was then, every line the user's, no trace of the watching."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module
from torch.utils._python_dispatch import _get_current_dispatch_mode

from headwise.doctor.trace import Op, Recording, plain_kernels, recording


class Block(nn.Module):
    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.register_buffer("table", torch.randn(5, width))

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.table[: x.shape[1]]  # ADD
        return y + torch.relu(self.inner(self.norm(y)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 6)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return x @ self.words.weight.mT  # LOGITS


def recorded(model: nn.Module, *inputs: Tensor) -> tuple[Recording, Tensor]:
    with torch.no_grad(), recording(model, inputs) as record:
        out = model(*inputs)
        record.settle(out)
    return record, out


def line_of(mark: str) -> int:
    lines = linecache.getlines(__file__)
    return next(n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}"))


def op_named(record: Recording, name: str, place: int = -1) -> Op:
    return [op for op in record.ops if op.name == name][place]


@pytest.fixture
def model() -> Model:
    return Model().double().eval()


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(0, 7, (3, 5))


def test_what_is_recorded_is_what_runs(model: Model, ids: Tensor) -> None:
    plain = model(ids).detach()
    record, out = recorded(model, ids)
    assert torch.equal(out, plain)
    value = record.value_of(out)
    assert value is not None and torch.equal(value.tensor, plain)
    assert value.op is not None and value.op is record.ops[-1]


def test_a_value_is_made_of_its_ancestors_and_makes_its_descendants(model: Model, ids: Tensor) -> None:
    record, out = recorded(model, ids)
    logits, tokens = record.value_of(out), record.value_of(ids)
    assert logits is not None and tokens is not None
    assert tokens.name == "input 0" and tokens.op is None and tokens.sources == 1
    assert logits.sources == 1 and logits.trained
    assert tokens in record.ancestors([logits]) and logits in record.descendants([tokens])
    way = record.between([tokens], [logits])
    assert [op.index for op in way] == sorted(op.index for op in way)
    assert way[0].name == "embedding" and way[-1] is logits.op
    middle = way[len(way) // 2].out
    assert middle not in record.descendants([tokens], stop={middle})


def test_leaves_bear_their_names(model: Model, ids: Tensor) -> None:
    record, _ = recorded(model, ids)
    names = {value.name for value in record.values if value.op is None}
    assert {
        "input 0",
        "parameter words.weight",
        "parameter blocks.1.inner.weight",
        "buffer blocks.0.table",
    } <= names
    trained = {value.name for value in record.values if value.op is None and value.trained}
    assert all(name.startswith("parameter") for name in trained)


def test_other_leaves_are_named_by_who_records(model: Model, ids: Tensor) -> None:
    goal = torch.randint(0, 7, (3, 5))
    with torch.no_grad(), recording(model, [ids], also={"targets": goal}) as record:
        F.cross_entropy(model(ids).flatten(0, 1), goal.flatten())
    assert any(value.name == "targets" for value in record.values)


def test_each_operation_has_the_users_line(model: Model, ids: Tensor) -> None:
    record, _ = recorded(model, ids)
    place = record.ops[-1].place
    assert place is not None
    assert (place.file, place.line, place.function) == (__file__, line_of("LOGITS"), "Model.forward")
    added = next(op for op in record.ops if op.name == "add")
    assert added.place is not None and added.place.line == line_of("ADD")
    # inside a layer of torch the innermost line of the user's is the call of the layer
    norm = op_named(record, "native_layer_norm", 0)
    assert norm.place is not None and norm.place.line == line_of("ADD") + 1
    assert [frame.place.function for frame in norm.frames[:2]] == ["Block.forward", "Model.forward"]
    assert not any(frame.library for frame in norm.frames[:2])


def test_each_operation_knows_its_module(model: Model, ids: Tensor) -> None:
    record, _ = recorded(model, ids)
    norms = [op for op in record.ops if op.name == "native_layer_norm"]
    assert [op.module for op in norms] == ["blocks.0.norm", "blocks.1.norm"]
    assert [path for path, _ in norms[1].modules] == ["", "blocks.1", "blocks.1.norm"]
    assert (
        len({call for op in norms for _, call in op.modules}) == 5
    )  # the model's call is one, the others are not


def test_the_watching_leaves_no_trace(model: Model, ids: Tensor) -> None:
    was = torch.backends.mha.get_fastpath_enabled()
    hooks = len(torch_module._global_forward_pre_hooks), len(torch_module._global_forward_hooks)
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    recorded(model, ids)
    assert _get_current_dispatch_mode() is None
    assert torch.backends.mha.get_fastpath_enabled() == was
    assert (len(torch_module._global_forward_pre_hooks), len(torch_module._global_forward_hooks)) == hooks
    for name, module in model.named_modules():
        assert vars(module).keys() == before[name].keys()
        assert not module._forward_hooks and not module._forward_pre_hooks


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nor_does_it_when_the_model_raises(error: type[BaseException], ids: Tensor) -> None:
    class Broken(Model):
        def forward(self, ids: Tensor) -> Tensor:
            self.blocks[0](self.words(ids))
            raise error

    model = Broken()
    was = torch.backends.mha.get_fastpath_enabled()
    hooks = len(torch_module._global_forward_pre_hooks), len(torch_module._global_forward_hooks)
    with pytest.raises(error), recording(model, [ids]) as record:
        model(ids)
    assert _get_current_dispatch_mode() is None
    assert torch.backends.mha.get_fastpath_enabled() == was
    assert (len(torch_module._global_forward_pre_hooks), len(torch_module._global_forward_hooks)) == hooks
    assert record.ops and record.error is None


def test_the_operation_that_fails_is_the_last_and_has_its_operands() -> None:
    class Wrong(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            return y @ x  # FAILS

    x = torch.randn(3, 5)
    with pytest.raises(RuntimeError), recording(Wrong(), [x]) as record:
        Wrong()(x)
    last = record.ops[-1]
    assert record.error is not None and not last.outputs
    assert [value.shape for value in last.inputs] == [(3, 5), (3, 5)]
    assert last.place is not None and last.place.line == line_of("FAILS")


def test_older_values_keep_what_they_held() -> None:
    class InPlace(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            z = y + 1
            y.mul_(10)
            y[:, 0] = 0.0
            return y + z

    x = torch.randn(3, 4, dtype=torch.float64)
    record, out = recorded(InPlace(), x)
    first, second, third = [op.out for op in record.ops if op.name in {"mul", "add", "mul_"}][:3]
    assert torch.equal(first.tensor, x * 2)
    assert torch.equal(second.tensor, x * 2 + 1)
    assert torch.equal(third.tensor, x * 20)
    last = record.ops[-1]
    read = last.inputs[0]  # what y is after both writes
    assert read.op is not None and read.op.name == "update"
    assert torch.equal(read.tensor, (x * 20).index_fill(1, torch.tensor(0), 0.0))
    assert torch.equal(out, read.tensor + second.tensor)
    # all of it is on the way from the input
    assert {first, third} <= record.ancestors([read])


def test_a_view_sees_what_was_written_to_its_base() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            base = torch.zeros(4, 6, dtype=x.dtype)
            early = base[1:3]
            base[:2] = x
            return early * 3

    x = torch.randn(2, 6, dtype=torch.float64)
    record, out = recorded(Views(), x)
    value = record.value_of(out)
    assert value is not None and value.sources == 1
    assert torch.equal(out, torch.cat([x[1:] * 3, torch.zeros(1, 6, dtype=x.dtype)]))
    written = op_named(record, "copy_")
    assert written.out in record.ancestors([value])


def test_an_output_that_was_written_through_a_view_is_read_as_it_came_out() -> None:
    class Hides(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y[:, 0] = float("-inf")
            return y

    record, out = recorded(Hides(), torch.randn(3, 4))
    value = record.value_of(out)
    assert value is not None and torch.equal(value.tensor, out) and torch.isinf(value.tensor[:, 0]).all()


def test_a_value_is_never_taken_for_another_at_the_same_address() -> None:
    class Churn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            total = x * 0
            for step in range(10):  # each result dies at once, its memory is free for the next
                total = total + (x + step).exp().neg().exp()
            return total

    x = torch.randn(8, dtype=torch.float64)
    record, out = recorded(Churn(), x)
    for op in record.ops:
        if op.name == "exp":
            assert torch.equal(op.out.tensor, op.inputs[0].tensor.exp())
    assert torch.equal(out, Churn()(x))


def attention_kernel(x: Tensor) -> Tensor:
    heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def test_fused_kernels_show_their_products() -> None:
    class Fused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return attention_kernel(self.layer(x))

    model, x = Fused().eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        plain = model(x)
    record, out = recorded(model, x)
    names = [op.name for op in record.ops]
    assert names.count("bmm") == 4 and sum(name in {"_softmax", "_safe_softmax"} for name in names) == 2
    assert not any("scaled_dot_product" in name or "transformer_encoder" in name for name in names)
    assert torch.allclose(out, plain, atol=1e-5)
    with plain_kernels():
        assert not torch.backends.mha.get_fastpath_enabled()


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
def test_flex_attention_shows_its_products() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    def flex(x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        return flex_attention(heads, heads, heads, score_mod=lambda s, b, h, i, j: s + 0.1 * (i - j))  # type: ignore[return-value]

    model, x = nn.Linear(8, 8), torch.randn(2, 5, 8)
    with torch.compiler.set_stance("force_eager"), torch.no_grad():
        plain = flex(model(x))
        with recording(model, [x]) as record:
            out = flex(model(x))
    names = [op.name for op in record.ops]
    assert names.count("bmm") == 2 and names.count("_safe_softmax") == 1 and "matmul" not in names
    assert torch.allclose(out, plain, atol=1e-6)
    lines = {
        op.place.file for op in record.ops if op.name in {"bmm", "_safe_softmax"} and op.place is not None
    }
    assert lines == {__file__}


@pytest.mark.parametrize(
    ("compute", "name", "numbers"),
    [
        (lambda x: x * 0.5, "mul", [0.5]),
        (lambda x: x.masked_fill(x > 0, -1e9), "masked_fill", [-1e9]),
        (lambda x: x.softmax(-1), "_softmax", [-1.0]),
    ],
)
def test_plain_numbers_among_the_arguments(
    compute: Callable[[Tensor], Tensor], name: str, numbers: list[float]
) -> None:
    x = torch.randn(3, 4)
    with recording(None, [x]) as record:
        compute(x)
    assert op_named(record, name).numbers() == numbers


def test_moves_and_element_wise_steps_are_told_apart() -> None:
    x = torch.randn(3, 4)
    with recording(None, [x]) as record:
        torch.relu(x.mT.reshape(12)).view(3, 4) @ x.mT
    kinds = {op.name: (op.moves, op.pointwise) for op in record.ops}
    assert kinds["relu"] == (False, True) and kinds["mm"] == (False, False)
    assert kinds["view"] == (True, False) and (kinds.get("t") or kinds["transpose"]) == (True, False)


def test_the_line_of_a_test_is_the_users(ids: Tensor) -> None:
    with recording(None, [ids]) as record:
        ids + 1
    here = inspect.currentframe()
    assert here is not None
    place = record.ops[0].place
    assert place is not None and place.file == __file__ and place.function == here.f_code.co_qualname
