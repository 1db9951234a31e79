"""What checks need of a subject, as the words of their `needs`: is it there, and what to say if not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwise.doctor.runner import is_finite

if TYPE_CHECKING:
    from headwise.doctor.probe import Probe

_FACTS: dict[str, Callable[[Probe], bool]] = {
    "run": lambda probe: probe.failure is None,
    "failure": lambda probe: probe.failure is not None,
    "kind": lambda probe: probe.kind is not None,
    "causal": lambda probe: probe.is_causal,
    "decoder": lambda probe: probe.kind == "decoder",
    "encoder": lambda probe: probe.kind == "encoder",
    "encoder-decoder": lambda probe: probe.kind == "encoder-decoder" and probe.source is not None,
    "encoder-side": lambda probe: probe.kind in {"encoder", "encoder-decoder"},
    "tokens": lambda probe: probe.main is not None and probe.main.is_ids,
    "stream": lambda probe: probe.main is not None,
    "sequence": lambda probe: probe.main is not None and probe.is_sequence,
    "sites": lambda probe: bool(probe.sites),
    "targets": lambda probe: probe.subject.targets is not None,
    "loss": lambda probe: probe.subject.loss is not None and probe.subject.targets is not None,
    "optimizer": lambda probe: probe.subject.optimizer is not None,
    "generate": lambda probe: probe.subject.generate is not None,
    "train_step": lambda probe: probe.subject.train_step is not None,
    "padding": lambda probe: probe.has_padding,
    "finite": lambda probe: is_finite(probe.base.logits),
    "rows": lambda probe: probe.batch.rows >= 2,
}

_WORDS = {
    "run": "the model does not run on its batch",
    "failure": "the model runs on its batch",
    "kind": "nothing says what kind of model this is: give --kind decoder, encoder or encoder-decoder",
    "causal": "it is for causal models, and this is {kind}",
    "decoder": "it is for decoders, and this is {kind}",
    "encoder": "it is for encoders, and this is {kind}",
    "encoder-decoder": "it is for encoder-decoders, and this is {kind}",
    "encoder-side": "it needs an encoder, and this is {kind}",
    "tokens": "the inputs are no token ids",
    "stream": "no input is a sequence of tokens or vectors",
    "sequence": "the output has no row for each position",
    "sites": "no attention (product, softmax, product) was recognised",
    "targets": "no targets were given",
    "loss": "no loss with targets was given",
    "optimizer": "no optimizer was given",
    "generate": "no generate function was given",
    "train_step": "no train_step was given",
    "padding": "no pad_id and no mask input was given",
    "finite": "the logits are not finite (see first-nan)",
    "rows": "the batch has one row only",
}

KNOWN = frozenset(_FACTS)


def lacking(probe: Probe, needs: frozenset[str]) -> str | None:
    """What a check needs and the subject does not give, as a sentence; None when all is there.

    Every check needs a model that runs, but those that ask why it does not ("failure").
    """
    first = () if "failure" in needs else ("run",)
    for need in (*first, *sorted(needs, key=lambda each: (each not in {"run", "failure"}, each))):
        if need == "loss" and _FACTS[need](probe) and probe.stop is not None and probe.stop.phase == "loss":
            return "the loss stops with an exception (see training-stops)"
        if not _FACTS[need](probe):
            return _WORDS[need].format(kind=probe.kind or "of unknown kind (give --kind)")
    return None
