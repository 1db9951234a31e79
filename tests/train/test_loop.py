"""The loop: what a step computes, when training ends, what it refuses, and what breaks it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.run import RunFiles, load_translator, open_run
from headwise.checkpoint.weights import load_tensors
from headwise.config import RunConfig
from headwise.train import loop, translation
from headwise.train.batch import Batch
from headwise.train.loop import train
from headwise.train.prepare import prepare
from headwise.train.progress import View
from headwise.train.tasks import make_task
from tiny_run import ENVIRONMENT, metrics, silent, tiny, with_model


def trainer(config: RunConfig) -> Any:
    """What train makes inside, in float64."""
    with open_run(config) as files:
        task = make_task(config, files, lambda _: None)
        made = loop._Trainer(config, files, task, silent())
    made.model.double()
    return made


def gradients_of_step(config: RunConfig, choose: Callable[[list[Batch]], list[Batch]]) -> dict[str, Tensor]:
    """Gradients of the first step on the first two batches, as chosen; plain SGD makes them visible."""
    made = trainer(config)
    made.optimizer = torch.optim.SGD(made.model.parameters(), lr=0.0)
    before = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    upcoming = made._upcoming()
    made._step(choose([next(upcoming), next(upcoming)]))
    made.metrics.close()
    rate = made.optimizer.param_groups[0]["lr"]
    return {name: (before[name] - p.detach()) / rate for name, p in made.model.named_parameters()}


def padded(batches: list[Batch]) -> list[Batch]:
    """Two batches as one."""

    def join(parts: list[Tensor]) -> Tensor:
        longest = max(part.size(1) for part in parts)
        return torch.cat([F.pad(part, (0, longest - part.size(1))) for part in parts])

    sides = ("source", "decoder_input", "labels")
    return [Batch(*(join([getattr(batch, side) for batch in batches]) for side in sides))]


def test_accumulation_is_one_large_batch(tmp_path: Path) -> None:
    config = with_model(tiny(tmp_path / "run", clip_norm=0.0), dropout=0.0)
    several = gradients_of_step(config, lambda batches: batches)
    one = gradients_of_step(config, padded)
    largest = max(gradient.abs().max().item() for gradient in one.values())
    for name, gradient in several.items():
        assert (gradient - one[name]).abs().max() < 1e-10 * max(1, largest), name
    # the wrong twin, a mean of the batches' means, is another gradient where their sizes differ
    halves = [gradients_of_step(config, lambda batches, i=i: [batches[i]]) for i in range(2)]
    assert any((halves[0][n] + halves[1][n] - 2 * one[n]).abs().max() > 1e-6 for n in one)


def test_clipping_shortens_and_zero_is_off(tmp_path: Path) -> None:
    def length(clip: float) -> float:
        config = with_model(tiny(tmp_path / f"{clip}", clip_norm=clip), dropout=0.0)
        return torch.cat([g.flatten() for g in gradients_of_step(config, lambda b: b).values()]).norm().item()

    whole = length(0.0)
    assert whole > 0.1
    assert length(0.05) == pytest.approx(0.05, rel=1e-4)
    assert length(1e9) == pytest.approx(whole, rel=1e-12)


def test_the_model_learns_its_few_pairs_by_heart(tmp_path: Path) -> None:
    config = with_model(
        tiny(
            tmp_path / "run", train_size=24, max_steps=150, validate_every=150, log_every=50, save_every=None,
            batch_tokens=1024, learning_rate=1e-2, warmup_steps=20, label_smoothing=0.0, average_last=1,
        ),
        d_model=32, d_ff=64, dropout=0.0,
    )  # fmt: skip
    train(config, silent())
    losses = [line["loss"] for line in metrics(tmp_path / "run") if "loss" in line]
    assert losses[0] > 1
    assert losses[-1] < 0.1


@pytest.mark.parametrize("watch", ["loss", "bleu"])
def test_training_stops_early_when_nothing_improves(
    watch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By script: better, better, worse, equal; patience 2 ends it at the fourth."""
    values = iter([3.0, 2.0, 2.5, 2.0, 1.0, 1.0])
    real = translation.validate

    def scripted(*given: Any) -> Any:
        result = real(*given)
        value = next(values)
        return replace(result, loss=value) if watch == "loss" else replace(result, bleu=10 - value)

    monkeypatch.setattr(translation, "validate", scripted)
    config = tiny(tmp_path / "run", validate_every=1, patience=2, watch=watch, average_last=1, max_steps=9)
    assert train(config, silent()).step == 4
    assert load_tensors(RunFiles(tmp_path / "run").model)[1]["step"] == 2
    assert not RunFiles(tmp_path / "run").checkpoints.exists()


def test_the_best_weights_are_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([3.0, 1.0, 2.0, 1.0])
    real = translation.validate
    monkeypatch.setattr(translation, "validate", lambda *given: replace(real(*given), loss=next(losses)))
    seen: dict[int, bytes] = {}
    save = loop.save_state

    def keep(path: Path, model: torch.nn.Module, *rest: Any) -> None:
        seen[rest[1].step] = model.get_parameter("output.weight").detach().numpy().tobytes()
        save(path, model, *rest)

    monkeypatch.setattr(loop, "save_state", keep)
    train(tiny(tmp_path / "run", validate_every=2, average_last=1, max_steps=6), silent())
    model = load_translator(tmp_path / "run").model
    assert model.output.weight.detach().numpy().tobytes() == seen[4]
    assert len(set(seen.values())) == 3


def test_the_final_weights_are_the_mean_of_the_last_checkpoints(tmp_path: Path) -> None:
    result = train(tiny(tmp_path / "run", validate_every=1, average_last=3, max_steps=5), silent())
    files = RunFiles(tmp_path / "run")
    names = [files.checkpoint(step) for step in (3, 4, 5)]
    assert sorted(files.checkpoints.iterdir()) == names
    parts = [load_tensors(path)[0] for path in names]
    for name, tensor in load_tensors(files.model)[0].items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0)
        torch.testing.assert_close(tensor, mean.float(), rtol=1e-6, atol=1e-8)
    assert metrics(tmp_path / "run")[-1]["final_loss"] == result.validation.loss


def test_the_padding_and_sample_translations_are_shown(tmp_path: Path) -> None:
    shown = io.StringIO()
    config = tiny(tmp_path / "run", samples=1)
    data = prepare(config, tmp_path / "tokenizer.json", lambda _: None)
    train(config, View(Console(file=shown)))
    lines = shown.getvalue().splitlines()
    batches = data.train.batches.epoch(0)
    share = re.search(r"(\d+\.\d)% padding", lines[0])
    assert share is not None
    assert float(share[1]) == pytest.approx(100 * data.train.batches.padding_share(batches), abs=0.05)
    # validated after steps 3 and 6: each time the sample follows the line of its validation
    validations = [i for i, line in enumerate(lines) if re.match(r"step \d+  validation loss", line)]
    assert len(validations) == 2
    source = data.validation_pairs[0][0]
    samples = [i for i, line in enumerate(lines) if line.startswith(f"    {source}  ->  ")]
    assert samples == [i + 1 for i in validations]


COMPILED = """
import functools, sys
from dataclasses import replace
from pathlib import Path
import torch
from tiny_run import metrics, silent, tiny, with_model
from headwise.train import metrics as tensorboard
from headwise.train.loop import train

tensorboard._tensorboard = lambda *_: None
folder = Path(sys.argv[1])
torch.compile = functools.partial(torch.compile, backend="aot_eager")
plain = with_model(tiny(folder / "plain", max_steps=4, validate_every=4, log_every=1), dropout=0.0)
compiled = replace(plain, run=str(folder / "compiled"), train=replace(plain.train, compile=True))
train(plain, silent())
train(compiled, silent())
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
"""


@pytest.mark.slow
def test_compiled_it_trains_alike(tmp_path: Path) -> None:
    """Captured whole and differentiated ahead of time; generating C++ too takes minutes on one core.

    In a process without run-time checks of shapes, which the compiler cannot trace.
    """
    subprocess.run([sys.executable, "-c", COMPILED, str(tmp_path)], env=ENVIRONMENT, check=True)
    ours, theirs = metrics(tmp_path / "plain"), metrics(tmp_path / "compiled")
    assert [sorted(line) for line in ours] == [sorted(line) for line in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert their == pytest.approx(our, rel=1e-4)


def test_a_copy_of_a_checkpoint_under_another_name_stays(tmp_path: Path) -> None:
    config = tiny(tmp_path / "run")
    train(config, silent())
    files = RunFiles(tmp_path / "run")
    first = min(files.checkpoints.iterdir())
    copy = first.with_name(f"keep-{first.name}")
    copy.write_bytes(first.read_bytes())
    train(config, silent())
    assert copy.exists()
