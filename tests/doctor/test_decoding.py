"""A cached step is held against the uncached pass; what parts them is told as position or as cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.cached import compared
from headwise.doctor.check import NotApplicable
from headwise.doctor.decoding import (
    batch_decoding,
    decode,
    fed,
    first_parting,
    prompt_length,
    row_of,
    text_of,
)
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

VOCAB, WIDTH = 29, 24


class Cached(nn.Module):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(40, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, VOCAB)
        nn.init.zeros_(self.merge.weight)  # a fresh model that attention does not reach

    def forward(self, ids: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        seen = 0 if past is None or self.fault == "restart" else past[0].size(1)
        x = self.words(ids) + self.places(torch.arange(seen, seen + ids.size(1)))
        q, k, v = self.qkv(x).chunk(3, -1)
        if past is not None:
            k = torch.cat((past[0], k), 1)
            v = torch.cat((v, past[1]) if self.fault == "order" else (past[1], v), 1)
        new, old = q.size(1), k.size(1)
        keep = torch.ones(new, old, dtype=torch.bool).tril(0 if self.fault == "mask" else old - new)
        scores = (q @ k.mT / WIDTH**0.5).masked_fill(~keep, float("-inf"))
        return self.out(x + self.merge(scores.softmax(-1) @ v)), (k, v)


@torch.no_grad()
def with_cache(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    step, past = ids, None
    for _ in range(n_new):
        logits, past = model(step, past)
        step = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat((ids, step), 1)
    return ids


@torch.no_grad()
def without_cache(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    for _ in range(n_new):
        ids = torch.cat((ids, model(ids)[0][:, -1:].argmax(-1)), 1)
    return ids


@torch.no_grad()
def only_the_new(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    return with_cache(model, ids, n_new)[:, ids.size(1) :]


@torch.no_grad()
def stale(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    """Feeds the first prompt token again and again."""
    logits, past = model(ids)
    first = ids[:, :1]
    for _ in range(n_new):
        ids = torch.cat((ids, logits[:, -1].argmax(-1, keepdim=True)), 1)
        logits, past = model(first, past)
    return ids


@torch.no_grad()
def mixes_rows(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    for _ in range(n_new):
        scores = model(ids)[0][:, -1]
        ids = torch.cat((ids, (scores - scores.mean(0)).argmax(-1, keepdim=True)), 1)
    return ids


def probe_of(fault: str = "", generate: Callable[..., Tensor] = with_cache) -> Probe:
    torch.manual_seed(0)
    ids = torch.stack([(start + 2 * torch.arange(14)) % VOCAB for start in range(5)])
    return Probe(adapt(Subject(Cached(fault), (ids,), kind="decoder", generate=generate)))


@pytest.mark.parametrize("generate", [with_cache, only_the_new])
def test_a_right_cache_gives_what_the_whole_text_gives(generate: Callable[..., Tensor]) -> None:
    told = compared(probe_of(generate=generate))
    assert told.steps >= 2 and told.mismatch is None


@pytest.mark.parametrize(("fault", "kind"), [("restart", "position"), ("order", "cache"), ("mask", "cache")])
def test_what_parts_a_cached_step_from_the_whole_text(fault: str, kind: str) -> None:
    """The zero projection hides none of them: the copy that decodes has small numbers there."""
    told = compared(probe_of(fault))
    assert told.mismatch is not None and told.mismatch.kind == kind
    place = told.mismatch.at
    assert place is not None and place.function == "Cached.forward"


def test_a_token_fed_again_is_no_position() -> None:
    told = compared(probe_of(generate=stale))
    assert told.mismatch is not None and told.mismatch.kind == "cache"
    assert told.mismatch.at is not None and told.mismatch.at.function == "stale"


def test_without_a_cache_no_step_relies_on_one() -> None:
    probe = probe_of(generate=without_cache)
    assert fed(batch_decoding(probe)) == [] and compared(probe).steps == 0


def test_a_generate_that_ignores_the_model_is_not_judged() -> None:
    with pytest.raises(NotApplicable, match="does not call"):
        compared(probe_of(generate=lambda _model, ids, n: torch.cat((ids, ids[:, :n]), 1)))


def test_the_users_model_is_not_touched() -> None:
    probe = probe_of("restart")
    model = probe.user_model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    compared(probe)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not model._forward_hooks and not model._forward_pre_hooks


@pytest.mark.parametrize("generate", [with_cache, without_cache, mixes_rows])
def test_a_row_parts_from_its_batch_where_rows_are_mixed(generate: Callable[..., Tensor]) -> None:
    probe = probe_of(generate=generate)
    together = batch_decoding(probe)
    alone = decode(probe, text_of(probe)[:1, : prompt_length(probe)])
    op = first_parting(probe, together.record, alone.record, 0, together.prompt.shape[0])
    assert (op is not None and op.name == "mean") if generate is mixes_rows else op is None


def test_a_rows_part_is_told_by_its_size() -> None:
    batch = torch.arange(24.0).view(6, 4)
    assert torch.equal(row_of(batch, batch[:2], 1, 3), batch[2:4])  # pyright: ignore[reportArgumentType]
    assert row_of(batch, torch.zeros(5, 4), 1, 3) is None
    assert row_of(batch, batch, 1, 3) is batch  # nothing of the batch in it
