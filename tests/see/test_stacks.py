"""What the data classes say of themselves."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from headwise.see.stacks import Layer, Stack


def test_a_stack_is_what_it_was_made_of_and_stays_it() -> None:
    layer = Layer("a", torch.eye(2)[None], torch.ones(1, 2, 2, dtype=torch.bool))
    stack = Stack("self", (layer,), ("x", "y"), ("x", "y"), ("read", "reading"))
    assert (layer.file, layer.line) == ("", 0) and stack.layers == (layer,)
    assert stack != dataclasses.replace(stack), "stacks are told apart by what they are, not by their numbers"
    with pytest.raises(dataclasses.FrozenInstanceError):
        stack.kind = "cross"  # type: ignore[misc]
