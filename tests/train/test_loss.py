"""The chunked cross-entropy against torch's own on the whole logits, and what it never holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.train import loss as module
from headwise.train.loss import cross_entropy, supervised

N, D, V = 37, 6, 23
EXACT = {torch.float64: 1e-10, torch.float32: 1e-5}
both_dtypes = pytest.mark.parametrize("dtype", EXACT, ids=["float64", "float32"])
Loss = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def whole(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """What cross_entropy must equal."""
    return F.cross_entropy(hidden @ weight.T, labels, label_smoothing=smoothing, reduction="sum")


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 rows a chunk: N tokens then take four, the last one short."""
    monkeypatch.setattr(module, "_CHUNK_ROWS", 10)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 0)


def inputs(dtype: torch.dtype, n: int = N) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.randn(n, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(V, (n,))


def value_and_gradients(
    loss: Loss, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, factor: float = 1.0
) -> list[Tensor]:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    value = loss(hidden, weight, labels, smoothing)
    (value * factor).backward()
    assert hidden.grad is not None and weight.grad is not None
    return [value.detach(), hidden.grad, weight.grad]


def largest_difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Relative to the largest entry of each, so that the tolerance means the same for all three."""
    return max(
        ((a - b).abs().max() / b.abs().max().clamp(min=1)).item() for a, b in zip(ours, theirs, strict=True)
    )


@both_dtypes
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("n", [1, 9, 10, 11, N])
@pytest.mark.usefixtures("small_chunks")
def test_equals_torchs_in_value_and_gradients(n: int, smoothing: float, dtype: torch.dtype) -> None:
    parts = inputs(dtype, n)
    ours = value_and_gradients(cross_entropy, *parts, smoothing)
    assert ours[0].dtype == ours[1].dtype == ours[2].dtype == dtype
    assert largest_difference(ours, value_and_gradients(whole, *parts, smoothing)) < EXACT[dtype]


def test_smoothing_over_the_other_tokens_only_would_not() -> None:
    """The other reading of label smoothing: eps / (V - 1) for all but the label."""
    parts = inputs(torch.float64)

    def other(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        share = smoothing / (V - 1)
        q = torch.full((N, V), share, dtype=hidden.dtype).scatter(1, labels[:, None], 1 - smoothing)
        return -(q * (hidden @ weight.T).log_softmax(-1)).sum()

    ours = value_and_gradients(cross_entropy, *parts, 0.1)
    assert largest_difference(ours, value_and_gradients(other, *parts, 0.1)) > 1e-3


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_agrees_with_finite_differences(smoothing: float) -> None:
    hidden, weight, labels = inputs(torch.float64, 5)
    cross_entropy(hidden, weight, labels, smoothing).backward()
    step = 1e-6
    for part in (hidden, weight):
        assert part.grad is not None
        flat, gradient = part.detach().view(-1), part.grad.flatten()
        for place in range(0, flat.numel(), 3):
            around: list[float] = []
            for move in (step, -2 * step, step):
                flat[place] += move
                around.append(cross_entropy(hidden.detach(), weight.detach(), labels, smoothing).item())
            assert abs((around[0] - around[1]) / (2 * step) - gradient[place].item()) < 1e-7


@both_dtypes
@pytest.mark.parametrize("factor", [1 / 37, 0.0, -3.0])
def test_an_outer_factor_scales_the_gradients(factor: float, dtype: torch.dtype) -> None:
    parts = inputs(dtype)
    ours = value_and_gradients(cross_entropy, *parts, 0.1, factor)
    assert largest_difference(ours, value_and_gradients(whole, *parts, 0.1, factor)) < EXACT[dtype]


@both_dtypes
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("is_right", [True, False])
def test_extreme_logits_stay_finite(is_right: bool, smoothing: float, dtype: torch.dtype) -> None:
    hidden = torch.full((4, 1), 1e4, dtype=dtype)
    weight = torch.tensor([[1.0], [-1.0], [0.0]], dtype=dtype)
    labels = torch.full((4,), 0 if is_right else 1)
    ours = value_and_gradients(cross_entropy, hidden, weight, labels, smoothing)
    assert all(bool(part.isfinite().all()) for part in ours)
    theirs = value_and_gradients(whole, hidden, weight, labels, smoothing)
    assert largest_difference(ours, theirs) < EXACT[dtype]
    if smoothing == 0:
        assert ours[0] == (0 if is_right else 4 * 2e4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("small_chunks")
def test_under_autocast_it_is_close_to_float32_and_as_close_as_torchs(smoothing: float) -> None:
    parts = inputs(torch.float32)
    exact = value_and_gradients(whole, *parts, smoothing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = value_and_gradients(cross_entropy, *parts, smoothing)
        theirs = value_and_gradients(whole, *parts, smoothing)
    assert [part.dtype for part in ours] == [torch.float32] * 3
    assert 0 < largest_difference(ours, exact) < 0.02
    assert largest_difference(ours, exact) < 2 * largest_difference(theirs, exact)


def test_bfloat16_weights_get_bfloat16_gradients() -> None:
    hidden, weight, labels = inputs(torch.bfloat16)
    ours = value_and_gradients(cross_entropy, hidden, weight, labels, 0.1)
    assert [part.dtype for part in ours] == [torch.float32, torch.bfloat16, torch.bfloat16]
    exact = value_and_gradients(whole, hidden.float(), weight.float(), labels, 0.1)
    assert largest_difference([part.float() for part in ours], exact) < 0.02


def test_no_tokens_cost_nothing() -> None:
    value, of_hidden, of_weight = value_and_gradients(cross_entropy, *inputs(torch.float32, 0), 0.1)
    assert value == 0 and of_hidden.shape == (0, D) and not of_weight.any()


def test_a_bad_weight_is_not_hidden() -> None:
    hidden, weight, labels = inputs(torch.float32)
    with torch.no_grad():
        weight[3, 2] = torch.nan
    assert cross_entropy(hidden, weight, labels).isnan()


@pytest.mark.parametrize("way", [torch.no_grad, torch.inference_mode])
def test_validation_makes_no_gradients(way: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    original = module._loss
    monkeypatch.setattr(
        module, "_loss", lambda *parts: asked.append(parts[-1] is not None) or original(*parts)
    )
    parts = inputs(torch.float64)
    trained = cross_entropy(*parts, 0.1)
    with way():
        validated = cross_entropy(*parts, 0.1)
    assert asked == [True, False]
    assert torch.equal(trained, validated)
    assert trained.requires_grad and not validated.requires_grad


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_either_side_may_be_frozen(frozen: str) -> None:
    hidden, weight, labels = inputs(torch.float64)
    expected = value_and_gradients(whole, hidden, weight, labels, 0.1)
    (hidden if frozen == "hidden" else weight).requires_grad_(False)
    cross_entropy(hidden, weight, labels, 0.1).backward()
    grads = [hidden.grad, weight.grad]
    assert grads[0 if frozen == "hidden" else 1] is None
    rest = grads[1 if frozen == "hidden" else 0]
    assert rest is not None
    assert (rest - expected[2 if frozen == "hidden" else 1]).abs().max() < 1e-10


@both_dtypes
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("small_chunks")
def test_a_divisor_divides_value_and_gradients(smoothing: float, dtype: torch.dtype) -> None:
    parts = inputs(dtype)
    ours = value_and_gradients(lambda *rest: cross_entropy(*rest, N), *parts, smoothing)
    theirs = value_and_gradients(whole, *parts, smoothing)
    assert largest_difference(ours, [part / N for part in theirs]) < EXACT[dtype]


def test_going_backward_twice_is_refused() -> None:
    hidden, weight, labels = inputs(torch.float64)
    loss = cross_entropy(hidden, weight, labels, 0.1)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated already"):
        loss.backward()


def test_a_tied_weight_gets_both_of_its_gradients() -> None:
    _, weight, labels = inputs(torch.float64)
    ids = torch.randint(V, (N,))
    grads = []
    for loss in (cross_entropy, whole):
        weight.grad = None
        value = loss(F.embedding(ids, weight).tanh(), weight, labels, 0.1)
        value.backward()
        assert weight.grad is not None
        grads.append(weight.grad)
    assert (grads[0] - grads[1]).abs().max() < 1e-10


def test_gradients_add_up_over_two_losses() -> None:
    hidden, weight, labels = inputs(torch.float64)
    (cross_entropy(hidden, weight, labels, 0.1) + cross_entropy(hidden, weight, labels, 0.1) / 2).backward()
    expected = value_and_gradients(whole, hidden, weight, labels, 0.1, 1.5)
    assert hidden.grad is not None and (hidden.grad - expected[1]).abs().max() < 1e-10
    assert weight.grad is not None and (weight.grad - expected[2]).abs().max() < 1e-10


class Largest(TorchDispatchMode):
    """Elements of the largest tensor that any operation returned."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self.numel = max(self.numel, part.numel())
        return result


def test_no_tensor_of_all_logits_exists() -> None:
    n, vocabulary = 1_000, 6_000
    hidden, weight = torch.randn(n, 4), torch.randn(vocabulary, 4)
    labels = torch.randint(vocabulary, (n,))
    sizes = []
    for loss in (cross_entropy, whole):
        with Largest() as largest:
            value_and_gradients(loss, hidden, weight, labels, 0.1)
        sizes.append(largest.numel)
    assert sizes[0] * 4 <= module._CHUNK_BYTES < n * vocabulary * 4
    assert sizes[1] == n * vocabulary  # the usual way does hold it


# supervised


def test_only_positions_with_a_label_are_kept_in_order() -> None:
    hidden = torch.arange(12.0).view(2, 3, 2)
    labels = torch.tensor([[5, 0, 7], [8, 9, 0]])
    rows, ids = supervised(hidden, labels, pad_id=0)
    assert rows.tolist() == [[0, 1], [4, 5], [6, 7], [8, 9]]
    assert ids.tolist() == [5, 7, 8, 9]


def test_padding_is_left_out_of_the_loss_as_ignore_index_would() -> None:
    hidden = torch.randn(3, 5, D, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(V, D, dtype=torch.float64)
    labels = torch.randint(1, V, (3, 5))
    labels[0, 3:] = labels[2, 1:] = 0
    rows, ids = supervised(hidden, labels, pad_id=0)
    ours = cross_entropy(rows, weight, ids, 0.1)
    logits = (hidden @ weight.T).flatten(0, 1)
    theirs = F.cross_entropy(logits, labels.flatten(), label_smoothing=0.1, reduction="sum", ignore_index=0)
    assert (ours - theirs).detach().abs() < 1e-10
    ours.backward()
    assert hidden.grad is not None and not hidden.grad[labels == 0].any()
    assert bool(hidden.grad[labels != 0].any(-1).all())


def test_a_batch_of_nothing_but_padding_has_no_rows() -> None:
    rows, ids = supervised(torch.randn(2, 3, D), torch.full((2, 3), 4), pad_id=4)
    assert rows.shape == (0, D) and ids.shape == (0,)
