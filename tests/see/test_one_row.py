"""One row of a batch, found in any layout; what ran is the user's model, and it comes back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.subject import Subject
from headwise.errors import ConfigError
from headwise.see.attention import attention
from headwise.see.one_row import RowPass, pass_over

X = torch.randn(3, 5, 16)


def encoder(is_first: bool = True) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=is_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def ran(model: Any, inputs: Any, row: int = 0, **more: Any) -> RowPass:
    return pass_over(adapt(Subject(model, inputs, **more)), row)


def test_law_a_row_alone_is_the_row_of_the_batch() -> None:
    model = encoder()
    for row in range(3):
        alone = ran(model, X[row : row + 1])
        for one, other in zip(ran(model, X, row).maps, alone.maps, strict=True):
            torch.testing.assert_close(one.weights, other.weights)
            assert one.weights.shape == (4, 5, 5)
    assert not torch.allclose(ran(model, X, 0).maps[0].weights, ran(model, X, 1).maps[0].weights, atol=1e-3)


def test_the_axis_of_the_rows_is_found_where_nothing_tells_it() -> None:
    model = encoder(is_first=False)
    told = ran(model, X.transpose(0, 1), 2, layout="time-major")
    found = ran(model, X.transpose(0, 1), 2)
    assert torch.equal(told.maps[1].weights, found.maps[1].weights)
    assert told.notes == () and found.notes[0].startswith(
        "it looks along axis 0 of its inputs, so axis 1 was"
    )


def test_inputs_without_a_batch_are_one_row() -> None:
    model = encoder()
    assert torch.equal(ran(model, X[1]).maps[0].weights, ran(model, X[1:2]).maps[0].weights)
    with pytest.raises(ConfigError, match="row must be 0: the inputs hold one row and no others, got 2"):
        ran(model, X[1], 2)


class Fixed(nn.Module):
    """Takes three rows, no more and no fewer; `share` of the next row is mixed into each."""

    def __init__(self, share: float = 0.0) -> None:
        super().__init__()
        self.layer, self.share = nn.MultiheadAttention(16, 4, batch_first=True), share

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(3, 5, 16)
        x = x + self.share * x.roll(1, 0)
        return self.layer(x, x, x)[0]


def test_the_slices_of_a_row_are_those_that_move_with_it_alone() -> None:
    model = Fixed()
    found = ran(model, X, 2)
    _, expected = model.layer(X, X, X, average_attn_weights=False)
    torch.testing.assert_close(found.maps[0].weights, expected[2].detach())
    with pytest.raises(
        ConfigError, match="row 1 has no attention of its own: the model mixes the rows of a batch"
    ):
        ran(Fixed(0.5), X, 1)


def test_a_model_that_remembers_forgets_what_it_was_shown() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls, self.last = encoder(), 0, None
            self.register_buffer("total", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.last = self.layer(x)
            self.total += 1
            return self.last

    model = Counting().train()
    ran(model, X)
    assert (model.calls, model.last, float(model.total), model.training) == (0, None, 0.0, True)


def test_compiled_models_run_as_they_were_written() -> None:
    model = encoder().eval()
    plain = ran(model, X)
    whole, inner = torch.compile(copy.deepcopy(model), backend="eager"), copy.deepcopy(model)
    inner.layers[0].compile(backend="eager")
    for compiled in (whole, inner):
        for one, other in zip(plain.maps, ran(compiled, X).maps, strict=True):
            assert torch.equal(one.weights, other.weights)


def test_the_row_of_every_input_is_taken() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = encoder()

        def forward(self, x: Tensor, pad_mask: Tensor, bias: Tensor) -> Tensor:
            return self.layer(x + bias[:, None, None], src_key_padding_mask=pad_mask)

    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[1, 3:] = True
    found = ran(Masked(), {"x": X, "pad_mask": mask, "bias": torch.arange(3.0)}, 1)
    assert torch.equal(found.maps[0].keep, (~mask[1]).expand(4, 5, 5))
    assert [tuple(leaf.shape) for leaf in found.batch.leaves] == [(1, 5, 16), (1, 5), (1,)]


def test_what_a_model_raises_on_its_own_batch_is_told() -> None:
    """Siamese over inputs of other lengths: along the other axis it would run, on rows that are none."""

    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = encoder()

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.layer(a) - self.layer(b)

    with pytest.raises(
        ConfigError,
        match=r"^the model could not be called on its batch: RuntimeError: The size of tensor a \(5",
    ):
        ran(Siamese(), (X, torch.randn(3, 7, 16)))

    class Wants(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = encoder(is_first=False)

        def forward(self, x: Tensor) -> Tensor:
            if tuple(x.shape[:2]) not in {(3, 1), (5, 1)}:
                raise ValueError(f"no {list(x.shape)}")
            return self.layer(x)

    with pytest.raises(ConfigError, match=r"its batch: ValueError: no \[3, 5, 16\]; give `call`"):
        ran(Wants(), X)


class Bank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = encoder()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.layer(a).mean(1) @ self.layer(b).mean(1).mT


def test_inputs_are_turned_only_where_all_have_that_axis() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = encoder(is_first=False)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return self.layer(a).mean(0) + self.layer(b).mean((0, 1))

    found = ran(Two(), (X, torch.randn(4, 5, 16)), kind="encoder-decoder")
    assert found.notes[0].startswith("it looks along axis 0") and found.maps[0].weights.shape == (4, 3, 3)
    # a bank of its own number of rows cannot be cut, and stays whole
    bank = ran(Bank(), (X, torch.randn(4, 6, 16)), 2, kind="encoder-decoder")
    assert torch.equal(bank.maps[0].weights, ran(Bank(), (X[2:], bank.batch.leaves[1])).maps[0].weights)


def test_one_row_is_read_with_the_batch_in_front() -> None:
    ids = torch.tensor([[3, 1, 4, 1, 5, 2]])
    table = nn.Embedding(9, 16)

    class Reads(nn.Module):
        def __init__(self, is_first: bool) -> None:
            super().__init__()
            self.table, self.layer = table, encoder(is_first)

        def forward(self, ids: Tensor) -> Tensor:
            return self.layer(self.table(ids))

    found = ran(Reads(True), ids)
    assert found.maps[0].weights.shape == (4, 6, 6) and found.notes == ()
    lengthwise = ran(Reads(False), ids)
    assert lengthwise.notes[0].startswith("it looks along axis 0 of its inputs, which has one position")
    assert torch.equal(lengthwise.maps[0].keep[0], torch.eye(6).bool()), "each is alone"
    for is_first in (True, False):
        (stack,) = attention(Reads(is_first), ids, tokens=list("abcdef")).stacks
        assert stack.queries == stack.keys == tuple("abcdef")


def test_a_model_that_ends_the_program_is_told() -> None:
    class Ends(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise SystemExit(3)

    with pytest.raises(ConfigError, match=r"^the model could not .* it calls sys.exit\(3\); give `call`"):
        ran(Ends(), X)


def test_queries_that_read_no_input_are_told() -> None:
    """Learnt queries over zeros look at one another first: the map is the same for every input."""

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queries = nn.Parameter(torch.randn(4, 16))
            self.own, self.cross = (nn.MultiheadAttention(16, 4, batch_first=True) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            z = torch.zeros(len(x), 4, 16)
            z = z + self.own(z + self.queries, z + self.queries, z)[0]
            return z + self.cross(z + self.queries, x, x)[0]

    found = ran(Detector(), X)
    assert [each.weights.shape for each in found.maps] == [(4, 4, 5)]
    (note,) = found.notes
    assert note.startswith("left out: 1 softmax (") and "queries that are learnt" in note


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a second device")
def test_another_device_gives_the_same_maps() -> None:
    model = encoder()
    here, there = ran(model, X), pass_over(adapt(Subject(model, X)), 0, "cuda")
    assert there.maps[0].weights.device.type == "cpu" and next(model.parameters()).device.type == "cpu"
    torch.testing.assert_close(there.maps[1].weights, here.maps[1].weights, atol=1e-4, rtol=0)
