"""The loss of a language model is torch's, its validation the mean over every window side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from headwise.checkpoint.run import RunFiles
from headwise.errors import DataError
from headwise.train.language import LanguageModelling, TextValidation
from headwise.train.tasks import make_task
from tiny_run import tiny_kind, with_model


def task_of(
    folder: Path, model: dict[str, Any] | None = None, text: dict[str, Any] | None = None, **train: Any
) -> LanguageModelling:
    run = folder / "run"
    run.mkdir()
    config = with_model(tiny_kind("language", run, **train), **(model or {}))
    config = replace(config, data=replace(config.data, text=replace(config.data.text, **(text or {}))))
    task = make_task(config, RunFiles(run), lambda _: None)
    assert isinstance(task, LanguageModelling)
    task.make_model().double().eval()
    return task


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(
    "model", [{}, {"output_bias": True}, {"scale_output": True}, {"output_bias": True, "scale_output": True}]
)
def test_loss_and_gradients_are_torchs_on_whole_logits(
    model: dict[str, Any], smoothing: float, tmp_path: Path
) -> None:
    task = task_of(tmp_path, model, label_smoothing=smoothing)
    batch = task.batch(task.epoch(0)[0])
    if task.model.output.bias is not None:
        torch.nn.init.normal_(task.model.output.bias)
    logits = task.model(batch[:, :-1])
    expected = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing=smoothing)
    mine = task.loss(batch, task.targets(batch))
    torch.testing.assert_close(mine, expected, rtol=1e-12, atol=0)
    parameters = list(task.model.parameters())
    pairs = zip(torch.autograd.grad(mine, parameters), torch.autograd.grad(expected, parameters), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("most", [2, 24, 30, 1_000_000])
def test_validation_is_the_mean_over_all_windows_side_by_side(most: int, tmp_path: Path) -> None:
    task = task_of(tmp_path, text={"validation_tokens": most}, label_smoothing=0.1)
    ids = torch.tensor(task.data.validation.ids.astype("int64"))
    losses: list[torch.Tensor] = []
    for start in range(0, len(ids), 8):
        if start + 9 <= len(ids) and (start == 0 or start + 8 <= most):
            logits = task.model(ids[None, start : start + 8])[0]
            losses += list(F.cross_entropy(logits, ids[start + 1 : start + 9], reduction="none"))
    found = task.validate()
    assert len(losses) >= 8 and found.loss == pytest.approx(torch.stack(losses).mean().item(), rel=1e-12)
    assert len(losses) == {2: 8, 24: 24, 30: 24}.get(most, (len(ids) - 1) // 8 * 8)


def test_bits_a_byte_by_hand(tmp_path: Path) -> None:
    """A model that has learnt nothing needs log2(V) bits a token."""
    task = task_of(tmp_path)
    torch.nn.init.zeros_(task.model.output.weight)
    found = task.validate()
    size, text = (
        task.data.tokenizer.vocab_size,
        task.data.tokenizer.decode([task.data.validation.ids.tolist()])[0],
    )
    assert found.loss == pytest.approx(math.log(size))
    assert found.bits_per_byte == pytest.approx(math.log2(size) * len(text) / len(text.encode()))
    assert found.perplexity == pytest.approx(size)


def test_what_is_told(tmp_path: Path) -> None:
    found = TextValidation(1.0, 2.0, ["a"])
    assert found.metrics("final") == {
        "final_loss": 1.0,
        "final_perplexity": math.e,
        "final_bits_per_byte": 2.0,
    }
    assert found.summary() == "validation loss 1.0000  perplexity 2.72  2.000 bits a byte"
    assert TextValidation(1e9, 1.0).perplexity < math.inf


@pytest.mark.parametrize(("samples", "lines"), [(0, 0), (1, 1), (2, 2), (50, 2)])
def test_samples_continue_places_of_the_validation_text(samples: int, lines: int, tmp_path: Path) -> None:
    task = task_of(tmp_path, samples=samples)
    found = task.validate().samples
    assert len(found) == lines
    text = task.data.tokenizer.decode([task.data.validation.ids.tolist()])[0]
    for line in found:
        prompt, _, answer = line.partition("  ->  ")
        assert len(eval(prompt)) == 16 and eval(prompt) in text and len(eval(answer)) == 48


@pytest.mark.parametrize(("share", "part"), [(0.005, "validation"), (0.995, "training")])
def test_a_part_shorter_than_a_window_is_named(share: float, part: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"the {part} text must hold a window of 8 tokens and one more: got"):
        task_of(tmp_path, text={"validation_share": share})


def test_a_batch_has_so_many_tokens_and_the_summary_says_how_many_there_are(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    batch = task.batch(task.epoch(0)[0])
    assert batch.shape == (12, 9) and task.targets(batch) == 96
    assert (
        f"{len(task.data.train):,} training tokens in {len(task.epoch(0))} batches an epoch" in task.summary()
    )
