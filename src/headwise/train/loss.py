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

_CHUNK_BYTES = 16 << 20  # of logits at a time: about half a last-level cache
_CHUNK_ROWS = 512  # but no fewer tokens (of float32) than this: each chunk reads the whole weight
_SOFTMAX_BYTES = 4 << 20  # of float32 scores at a time: they are passed over several times


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
            # the smoothed part of the target is the same for every token: sums do, without the logits
            sums = hidden.sum(0, dtype=torch.float64), weight.sum(0, dtype=_exact(weight.dtype))
            narrow = hidden.to(dtype), weight.to(dtype)
            if not any(ctx.needs_input_grad):
                return _loss(*narrow, labels, sums, smoothing, divisor, None)
            # the weight's gradient is a sum over chunks: it is kept in the weight's own precision
            gradients = torch.empty_like(narrow[0]), torch.empty_like(weight)
            loss = _loss(*narrow, labels, sums, smoothing, divisor, gradients)
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


def _exact(dtype: torch.dtype) -> torch.dtype:
    """float32, or the dtype itself where it is wider."""
    return torch.promote_types(dtype, torch.float32)


def _loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    sums: tuple[Tensor, Tensor],
    smoothing: float,
    divisor: float,
    gradients: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """The summed loss over divisor; its gradients (of hidden, of weight) are filled in.

    sums: of hidden over the tokens, of weight over the vocabulary, each [D].
    """
    vocab_size, num_tokens = weight.size(0), hidden.size(0)
    hidden_sum, weight_sum = sums
    even = smoothing / vocab_size  # what each token of the vocabulary gets of the target
    loss = -even * (hidden_sum @ weight_sum.double())
    size = hidden.dtype.itemsize
    chunk = max(_CHUNK_ROWS * 4 // size, _CHUNK_BYTES // (vocab_size * size))
    # one buffer for all chunks: memory this large costs as much to get as to fill
    buffer = hidden.new_empty((min(chunk, num_tokens), vocab_size))
    product = torch.empty_like(weight) if gradients and gradients[1].dtype is not weight.dtype else None
    if gradients is not None and num_tokens == 0:
        gradients[1].zero_()
    for start in range(0, num_tokens, chunk):
        rows = hidden[start : start + chunk]
        label = labels[start : start + chunk, None]  # [N, 1]
        logits = torch.mm(rows, weight.T, out=buffer[: len(rows)])  # [N, V]
        loss += _softmax_errors(logits, label, 1 - smoothing)
        if gradients is not None:
            torch.mm(logits, weight, out=gradients[0][start : start + chunk])
            begin = (hidden_sum * (-even / divisor)).to(gradients[1].dtype) if start == 0 else None
            _add_product(gradients[1], logits.T, rows / divisor, begin, product)
    if gradients is not None:
        gradients[0].sub_((weight_sum * even).to(hidden.dtype)).div_(divisor)
    return (loss / divisor).to(_exact(hidden.dtype))


def _softmax_errors(logits: Tensor, label: Tensor, confidence: float) -> Tensor:
    """Turn logits into softmax(logits) - confidence * onehot(label), in place.

    Returns the sum of log sum exp(logits) - confidence * logit(label), in float64.
    """
    exact = _exact(logits.dtype)
    step = max(16, _SOFTMAX_BYTES // (logits.size(1) * exact.itemsize))
    room = (
        None
        if exact is logits.dtype
        else logits.new_empty((min(step, len(logits)), logits.size(1)), dtype=exact)
    )
    total = torch.zeros((), dtype=torch.float64, device=logits.device)
    for start in range(0, len(logits), step):
        part, part_label = logits[start : start + step], label[start : start + step]
        scores = part if room is None else room[: len(part)].copy_(part)  # [N, V]
        highest = scores.amax(-1, keepdim=True)  # [N, 1]
        of_label = scores.gather(1, part_label)  # [N, 1]
        torch.softmax(scores, -1, out=scores)
        # the highest logit is highest + 0 before and log p after: the difference is log sum exp
        log_sum = highest - scores.amax(-1, keepdim=True).log()  # [N, 1]
        total += (log_sum - confidence * of_label).sum(dtype=torch.float64)
        scores.scatter_add_(1, part_label, torch.full_like(of_label, -confidence))
        if room is not None:
            part.copy_(scores)
    return total


def _add_product(total: Tensor, a: Tensor, b: Tensor, begin: Tensor | None, product: Tensor | None) -> None:
    """total += a b, or total = begin + a b the first time, without a pass over memory that can be saved.

    product: room for a b, where the total is of higher precision.
    """
    if product is not None:
        torch.mm(a, b, out=product)
        # copy_ converts as it goes; add would make a converted copy first
        total.add_(product) if begin is None else total.copy_(product).add_(begin)
    elif begin is None:
        total.addmm_(a, b)
    else:
        torch.addmm(begin, a, b, out=total)
