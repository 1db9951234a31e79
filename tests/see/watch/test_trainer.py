"""The callback in a real Trainer of transformers: the same bits, and what was seen."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from headwise.errors import MissingExtra


class Rows(Dataset):
    def __init__(self) -> None:
        self.ids = torch.randint(0, 40, (24, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.ids[row], "labels": self.ids[row]}


def train(callbacks: list[object], folder: Path) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    arguments = TrainingArguments(
        str(folder), num_train_epochs=2, per_device_train_batch_size=4, report_to=[], save_strategy="no",
        use_cpu=True, disable_tqdm=True, logging_strategy="no", gradient_accumulation_steps=2,
        learning_rate=1e-3, dataloader_pin_memory=False,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=Rows(), callbacks=callbacks).train()
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the library's own making
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_real_training(tmp_path: Path) -> None:
    from headwise.see.watch.trainer import WatchCallback

    plain = train([], tmp_path)
    callback = WatchCallback(2, budget=None, report=tmp_path / "report.html")
    seen = train([callback], tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), seen.parameters(), strict=True))
    watched = callback.watch
    assert watched is not None
    assert [sample.step for sample in watched.history] == [1, 2, 4, 6]
    last = watched.history[-1]
    assert set(last.attentions) == {"transformer.h.0.attn", "transformer.h.1.attn"}
    assert [len(each.heads) for each in last.attentions.values()] == [2, 2]
    assert last.loss is not None and last.rate is not None
    assert [f for f in watched.findings if f.severity != "note"] == []
    assert "Entropy of each head" in (tmp_path / "report.html").read_text()


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "headwise.see.watch.trainer", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(MissingExtra, match=r"pip install 'headwise\[transformers\]'"):
        import headwise.see.watch.trainer  # noqa: F401
