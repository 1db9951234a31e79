"""Translation as a task: its loss is torch's on whole logits, and its rows are those of the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from headwise.train.prepare import prepare
from headwise.train.translation import Translation, shown_pairs
from tiny_run import tiny


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_on_whole_logits(smoothing: float, tmp_path: Path) -> None:
    config = tiny(tmp_path, label_smoothing=smoothing)
    task = Translation(config, prepare(config, tmp_path / "tokenizer.json", lambda _: None))
    model = task.make_model().double().eval()
    rows = task.epoch(0)[0]
    batch = task.batch(rows)
    logits = model(batch.source, batch.decoder_input)
    pad_id = task.tokenizer.pad_id
    flat = logits.flatten(0, 1), batch.labels.flatten()
    expected = F.cross_entropy(*flat, ignore_index=pad_id, label_smoothing=smoothing)
    torch.testing.assert_close(task.loss(batch, task.targets(batch)), expected, rtol=1e-12, atol=0)
    assert task.targets(batch) == int((batch.labels != pad_id).sum()) < batch.labels.numel()
    shown = shown_pairs(batch, pad_id, smoothing)
    torch.testing.assert_close(shown.loss(logits, shown.targets), expected, rtol=1e-12, atol=0)
    assert (shown.kind, shown.pad_id) == ("encoder-decoder", pad_id)
