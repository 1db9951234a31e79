"""Cross-entropy over a large vocabulary without ever holding all the logits.

The logits of N tokens over V entries are the largest tensor of a training step, and the usual way
(linear layer, log-softmax, loss, and the gradients of each) holds several copies. Here a
chunk of tokens at a time makes its logits, its share of the loss and of the gradients: _CHUNK_BYTES
of float32 logits, or _CHUNK_ROWS tokens where the vocabulary is large. What stays in the
processor's cache is also faster. A small batch over a small vocabulary is one chunk.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from headwise.errors import DataError

_CHUNK_BYTES = 16 << 20  # of logits at a time: about a last-level cache
_CHUNK_ROWS = 512  # but no fewer tokens than this: each chunk also reads the weight and adds to its gradient


def cross_entropy(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    labels: Int[Tensor, " N"],
    label_smoothing: float = 0.0,
    divisor: float = 1.0,
) -> Float[Tensor, ""]:
    """Sum over the tokens of the cross-entropy of softmax(hidden weight^T) with the smoothed labels.

    q = (1 - eps) onehot(label) + eps / V        Rethinking the Inception Architecture, section 7

    In nats, divided by `divisor` (the number of tokens of a step gives the mean; dividing here costs
    nothing, dividing the result would cost a pass over the weight's gradient). Padding is the
    caller's to leave out (`supervised`). Under autocast the products run in its dtype, the softmax
    in float32.
    Errors: RuntimeError at a second backward through the same loss: its gradients were handed over.
    Law: equal to torch's cross_entropy of the whole logits, value and gradients.
    """
    if labels.size(0) != hidden.size(0):  # one label would be taken for all
        raise DataError(
            f"each position needs its label: got {hidden.size(0)} positions and {labels.size(0)} labels; "
            "take both from supervised()"
        )
    if not torch.is_grad_enabled():  # a Function cannot tell: it would make the gradients all the same
        hidden, weight = hidden.detach(), weight.detach()
    return cast(
        Tensor,
        _ChunkedCrossEntropy.apply(  # pyright: ignore[reportUnknownMemberType]
            hidden, weight, labels, label_smoothing, divisor
        ),
    )


def supervised(
    hidden: Float[Tensor, "B T D"], labels: Int[Tensor, "B T"], pad_id: int
) -> tuple[Float[Tensor, "N D"], Int[Tensor, " N"]]:
    """The positions that have something to learn: those whose label is not padding."""
    rows = (labels != pad_id).flatten().nonzero().squeeze(1)
    return hidden.flatten(0, 1).index_select(0, rows), labels.flatten()[rows]


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Makes the gradients in the forward pass, while each chunk's softmax is at hand."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, divisor: float
    ) -> Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        with torch.autocast(device, enabled=False):
            narrow = hidden.to(dtype), weight.to(dtype)
            if not any(ctx.needs_input_grad):
                return _loss(*narrow, labels, smoothing, divisor, None)
            # the weight's gradient is a sum over chunks: it is kept in the weight's own precision
            gradients = torch.empty_like(narrow[0]), torch.empty_like(weight)
            loss = _loss(*narrow, labels, smoothing, divisor, gradients)
        ctx.gradients = gradients[0].to(hidden.dtype), gradients[1]
        return loss

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, output: Tensor
    ) -> tuple[Tensor, Tensor, None, None, None]:
        if ctx.gradients is None:
            raise RuntimeError(
                "this loss was differentiated already: expected one backward; compute it again"
            )
        # handed over, not kept: a second owner would make autograd copy the weight's gradient
        (hidden_gradient, weight_gradient), ctx.gradients = ctx.gradients, None
        # a pass over the weight is worth a look at one number
        if output.device.type != "cpu" or output.item() != 1:
            hidden_gradient, weight_gradient = hidden_gradient * output, weight_gradient * output
        return hidden_gradient, weight_gradient, None, None, None


def _loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    divisor: float,
    gradients: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """The summed loss over divisor; its gradients (of hidden, of weight) are filled in."""
    vocab_size, num_tokens = weight.size(0), hidden.size(0)
    exact = torch.promote_types(hidden.dtype, torch.float32)
    chunk = min(max(_CHUNK_ROWS, _CHUNK_BYTES // (vocab_size * exact.itemsize)), max(num_tokens, 1))
    loss = torch.zeros((), dtype=torch.float64, device=hidden.device)
    # one buffer for all chunks: memory this large costs as much to get as to fill
    wide = hidden.new_empty((chunk, vocab_size), dtype=exact)
    narrow = wide if exact is hidden.dtype else torch.empty_like(wide, dtype=hidden.dtype)
    # the smoothed part of the target is the same for every token: it needs sums, not a pass over the logits
    weight_sum = weight.sum(0, dtype=exact)  # [D]
    uniform = hidden.sum(0, dtype=exact).mul_(-smoothing / (vocab_size * divisor))  # [D]
    if gradients is not None and num_tokens == 0:
        gradients[1].zero_()
    for start in range(0, num_tokens, chunk):
        rows = hidden[start : start + chunk]
        label = labels[start : start + chunk, None]  # [N, 1]
        logits, error = wide[: len(rows)], narrow[: len(rows)]
        torch.mm(rows, weight.T, out=error)
        if error.dtype is not exact:
            logits.copy_(error)
        highest = logits.amax(-1, keepdim=True)  # [N, 1]
        of_label = logits.gather(1, label)  # [N, 1]
        probability = torch.softmax(logits, -1, out=logits)  # [N, V]
        # the highest logit is highest + 0 before and log p after: the difference is log sum exp
        log_sum = highest - probability.amax(-1, keepdim=True).log()  # [N, 1]
        mean_logit = (rows.to(exact) @ weight_sum / vocab_size)[:, None]  # [N, 1]
        loss += (log_sum - (1 - smoothing) * of_label - smoothing * mean_logit).sum(dtype=torch.float64)
        if gradients is not None:
            probability.scatter_add_(1, label, torch.full_like(of_label, smoothing - 1))
            if error.dtype is not exact:
                error.copy_(probability)
            torch.mm(error, weight, out=gradients[0][start : start + chunk])
            _add_product(gradients[1], error.T, rows / divisor, uniform if start == 0 else None)
    if gradients is not None:
        gradients[0].sub_((weight_sum * (smoothing / vocab_size)).to(hidden.dtype)).div_(divisor)
    return (loss / divisor).to(exact)


def _add_product(total: Tensor, a: Tensor, b: Tensor, begin: Tensor | None) -> None:
    """total += a b, or total = begin + a b the first time, without a pass over memory that can be saved."""
    if total.dtype != a.dtype:
        torch.add(a @ b, total if begin is None else begin, out=total)
    elif begin is None:
        total.addmm_(a, b)
    else:
        torch.addmm(begin.to(total.dtype), a, b, out=total)
