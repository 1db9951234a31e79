"""The callback in a real Lightning training, of both packages: the same bits, and what was seen."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from headwise.errors import MissingExtra

pytestmark = [
    pytest.mark.slow,  # importing the library takes seconds
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the library's own making
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*`isinstance.treespec, LeafSpec.` is deprecated"),
]


def fit(library: ModuleType, callbacks: list[object], folder: Path) -> nn.Module:
    class Net(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(20, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 20)

        def training_step(self, ids: Tensor, _number: int) -> Tensor:
            return F.cross_entropy(self.head(self.body(self.tokens(ids))).flatten(0, 1), ids.flatten())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-3)

    torch.manual_seed(0)
    model = Net()
    data = torch.randint(0, 20, (24, 8))
    trainer = library.Trainer(
        max_epochs=2, callbacks=callbacks, logger=False, enable_checkpointing=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=2,
        default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(model, DataLoader(data, batch_size=4, shuffle=True))
    return model


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_a_real_training(name: str, tmp_path: Path) -> None:
    from headwise.see.watch.lightning import WatchCallback

    library = pytest.importorskip(name)
    plain = fit(library, [], tmp_path)
    callback = WatchCallback(2, budget=None, report=tmp_path / "report.html")
    assert isinstance(callback, library.Callback)
    seen = fit(library, [callback], tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), seen.parameters(), strict=True))
    watched = callback.watch
    assert watched is not None
    assert [sample.step for sample in watched.history] == [1, 2, 4, 6]
    last = watched.history[-1]
    assert set(last.attentions) == {"body.layers.0.self_attn", "body.layers.1.self_attn"}
    assert last.loss is not None and last.layers["head"].update
    assert [f for f in watched.findings if f.severity != "note"] == []
    assert "Entropy of each head" in (tmp_path / "report.html").read_text()


def test_a_training_that_fails_leaves_no_hooks(tmp_path: Path) -> None:
    import lightning.pytorch as library
    from torch.optim import optimizer as torchs

    from headwise.see.watch.lightning import WatchCallback

    class Failing(library.Callback):
        def on_train_batch_end(self, *_: object) -> None:
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fit(library, [WatchCallback(2), Failing()], tmp_path)
    assert not torchs._global_optimizer_pre_hooks


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "headwise.see.watch.lightning", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(MissingExtra, match=r"pip install 'headwise\[lightning\]'"):
        import headwise.see.watch.lightning  # noqa: F401
