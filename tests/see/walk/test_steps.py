"""Claims: an operation belongs to the first step that takes it."""

from __future__ import annotations

import torch
from torch import nn

from headwise.doctor.trace import recording
from headwise.see.walk.steps import Claims, Group, steps_of
from headwise.see.walk.walk import trace
from see.walk.walk_models import Einsum, ids, numbers


def test_what_is_claimed_stays_and_nothing_makes_no_step() -> None:
    with recording(nn.Module(), [x := numbers(3)]) as record:
        torch.exp(x + 1)
    claims = Claims()
    first = claims.claim("other", "one", record.ops[:1], [])
    both = claims.claim("other", "both", record.ops, [])
    assert first is not None and both is not None and both.ops == {record.ops[1]}
    assert claims.claim("other", "none", record.ops, []) is None
    claims.give(record.ops[0], both)
    assert claims.of[record.ops[0]] is first and len(claims.drafts) == 2


def test_steps_of_a_repeated_group_come_once() -> None:
    walk = trace(Einsum(depth=3), ids())
    (group,) = [row for row in walk.rows if isinstance(row, Group)]
    assert group.times == 3 and len([s for s in steps_of(walk.rows) if s.name == "scores"]) == 1
