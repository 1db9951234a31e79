"""What a step was fed and where a row parts from its batch are told from recordings of generate."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from doctor.cached_model import (
    mixes_rows,
    probe_of,
    with_cache,
    without_cache,
)
from headwise.doctor.cached import compared
from headwise.doctor.decoding import (
    apart,
    batch_decoding,
    decode,
    fed,
    first_parting,
    prompt_length,
    row_of,
    text_of,
)


def test_without_a_cache_no_step_relies_on_one() -> None:
    probe = probe_of(generate=without_cache)
    assert fed(batch_decoding(probe)) == [] and compared(probe).steps == 0


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


def test_scores_are_apart_by_a_share_of_their_spread_or_of_their_size_where_all_are_alike() -> None:
    probe = probe_of(generate=without_cache)
    scores = torch.randn(4, 9, dtype=torch.float64)
    assert apart(probe, scores, scores + 0.5 * scores.std()) == pytest.approx(0.5)
    assert apart(probe, scores, scores + 1e-12) == 0.0
    alike = torch.full((5,), 3.0, dtype=torch.float64)
    assert apart(probe, alike, 1.5 * alike) == pytest.approx(1 / 3) and apart(probe, alike, alike) == 0.0
    one = torch.tensor([2.0], dtype=torch.float64)
    assert apart(probe, one, one + 1) == pytest.approx(1 / 3)
    nothing = torch.zeros(5, dtype=torch.float64)
    assert apart(probe, nothing, nothing + 1e-17) == 0.0  # what is left of larger numbers


def test_what_fills_a_mask_and_forbidden_ids_say_nothing_of_the_spread() -> None:
    probe = probe_of(generate=without_cache)
    scores = torch.randn(4, 9, dtype=torch.float64)
    for fill in (-torch.inf, torch.finfo(torch.float32).min):
        masked = scores.clone()
        masked[:, 2] = fill
        kept = torch.arange(9) != 2
        assert apart(probe, masked, masked + 1) == pytest.approx(float(1 / (scores[:, kept] + 1).std()))
