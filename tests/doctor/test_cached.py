"""A cached step is held against the uncached pass; what parts them is told as position or as cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from doctor.cached_model import (
    only_the_new,
    probe_of,
    stale,
    with_cache,
)
from headwise.doctor.cached import compared
from headwise.doctor.check import NotApplicable


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
