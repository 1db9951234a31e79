"""recipes/shakespeare.yaml against nanoGPT, in one process: how fast a step is, and what training comes to.

    python benchmarks/shakespeare.py PATH/TO/nanoGPT/model.py PATH/TO/shakespeare            # speed: a minute
    python benchmarks/shakespeare.py PATH/TO/nanoGPT/model.py PATH/TO/shakespeare --train    # ten minutes

The sizes are nanoGPT's for a CPU (4 layers, 4 heads, width 128, 64 characters, 12 windows a step, dropout
0), and so are its optimizer and its schedule (learning rate 1e-3 to 1e-4, 100 steps of warm-up, beta2
0.99, gradients clipped at 1). Its train.py knows no bfloat16 on a CPU; here it runs in both precisions.
headwise runs with nanoGPT's architecture (learned positions, LayerNorm, GELU, no biases) in both
precisions, and as the recipe has it. The steps alternate, so that a busy machine slows all of them, and
ratios are those of the medians. With --train nanoGPT takes 2,000 steps, the recipe takes as many, and a
second run of the recipe takes as many as fit into nanoGPT's time; the loss is the mean over all windows of
64 characters of the last tenth, side by side. nanoGPT is not part of headwise:
https://github.com/karpathy/nanoGPT.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.checkpoint.run import RunFiles
from headwise.cli.train import config_of
from headwise.config import RunConfig
from headwise.train.optim import make_optimizer, set_learning_rate
from headwise.train.schedule import learning_rate
from headwise.train.tasks import make_task

LENGTH, ROWS, STEPS = 64, 12, 2_000
RECIPE = Path(__file__).parent.parent / "recipes" / "shakespeare.yaml"


@dataclass
class Contender:
    """A model in training: `step` takes the next one, `loss` gives the sum of a batch's losses."""

    name: str
    model: nn.Module
    step: Callable[[int], None]
    loss: Callable[[Tensor], Tensor]
    is_half: bool
    took: list[float] = field(default_factory=list)

    def take(self) -> None:
        """One step, and its time."""
        self.model.train()
        began = time.perf_counter()
        self.step(len(self.took) + 1)
        self.took.append(time.perf_counter() - began)

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """In which the products are taken."""
        return torch.autocast("cpu", torch.bfloat16) if self.is_half else contextlib.nullcontext()


def ours(name: str, config: RunConfig, folder: Path) -> Contender:
    """headwise, by the same calls as `headwise train` makes."""
    task = make_task(config, RunFiles(folder), print)
    torch.manual_seed(config.train.seed)
    model = task.make_model()
    optimizer = make_optimizer(model, config.train)
    rows = (rows for number in range(10**6) for rows in task.epoch(number))

    def step(number: int) -> None:
        batch = task.batch(next(rows))
        with contender.precision():
            loss = task.loss(batch, task.targets(batch))
        loss.item()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.train.clip_norm).item()
        set_learning_rate(optimizer, learning_rate(number, config.train, config.model.d_model))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    contender = Contender(
        name, model, step, lambda batch: task.loss(batch, 1.0), config.train.precision == "bfloat16"
    )
    return contender


def theirs(name: str, path: Path, text: Tensor, vocab_size: int, is_half: bool, marks: int) -> Contender:
    """nanoGPT, as its train.py trains on a CPU."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(1)
    with contextlib.redirect_stdout(io.StringIO()):
        config = module.GPTConfig(
            block_size=LENGTH, vocab_size=vocab_size, n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False
        )
        model = module.GPT(config)
        optimizer = model.configure_optimizers(0.1, 1e-3, (0.9, 0.99), "cpu")
    generator = torch.Generator().manual_seed(1)

    def step(number: int) -> None:
        starts = torch.randint(len(text) - LENGTH, (ROWS,), generator=generator)
        batch = torch.stack([text[start : start + LENGTH + 1] for start in starts]) - marks
        share = (number - 100) / (STEPS - 100)
        rate = (
            number / 100 * 1e-3 if number < 100 else 1e-4 + 4.5e-4 * (1 + math.cos(math.pi * min(share, 1)))
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        with contender.precision():
            _, loss = model(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.item()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def total(batch: Tensor) -> Tensor:
        _, loss = model((batch[:, :-1] - marks).contiguous(), (batch[:, 1:] - marks).contiguous())
        return loss * batch[:, 1:].numel()

    contender = Contender(name, model, step, total, is_half)
    return contender


@torch.no_grad()
def held_out_loss(contender: Contender, text: Tensor) -> float:
    """Nats a character over the windows of the held-out text, side by side."""
    contender.model.eval()
    count = (len(text) - 1) // LENGTH
    windows = text[: count * LENGTH + 1].unfold(0, LENGTH + 1, LENGTH)  # [N, LENGTH + 1]
    with contender.precision():
        return sum(contender.loss(batch).item() for batch in windows.split(64)) / (count * LENGTH)


def race(contenders: list[Contender], steps: list[int]) -> None:
    """Let all take their steps by turns."""
    for number in range(max(steps)):
        for contender, most in zip(contenders, steps, strict=True):
            if number < most:
                contender.take()


def lines(contenders: list[Contender], skip: int) -> Iterator[str]:
    """Median time of a step and ratio to the first contender."""
    medians = [statistics.median(contender.took[skip:]) for contender in contenders]
    for contender, median in zip(contenders, medians, strict=True):
        size = sum(p.numel() for p in contender.model.parameters())
        yield (
            f"{contender.name:<46}{size:>8,} parameters  {1e3 * median:6.2f} ms a step  "
            f"{ROWS * LENGTH / median:>7,.0f} characters/s  {medians[0] / median:.2f} times the first"
        )


def main() -> None:
    """Print the medians, or train and print the losses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("nanogpt", type=Path, help="nanoGPT's model.py")
    parser.add_argument("folder", type=Path, help="where input.txt lies")
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--train", action="store_true", help="train in full")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    recipe = config_of(RECIPE)
    recipe = replace(
        recipe, data=replace(recipe.data, text=replace(recipe.data.text, folder=str(given.folder)))
    )
    same = replace(
        recipe.model, norm="pre", norm_kind="layer", activation="gelu", gated=False, d_ff=512,
        positions="learned", scale_embedding=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        files = Path(name)
        task: Any = make_task(recipe, RunFiles(files), print)
        parts = task.data.train, task.data.validation
        text, held_out = (torch.from_numpy(part.ids[:].astype("int64")) for part in parts)
        marks = int(text.min())  # our vocabulary begins with marks that no character has, nanoGPT's has none
        vocab = task.data.tokenizer.vocab_size - marks
        print(f"torch {torch.__version__}, {given.threads} threads, {vocab} characters")

        def with_model(title: str, precision: Any, model: Any = same) -> Contender:
            changed = replace(recipe, model=model, train=replace(recipe.train, precision=precision))
            return ours(title, changed, files)

        first = theirs("nanoGPT, float32 (its train.py on a CPU)", given.nanogpt, text, vocab, False, marks)
        by_recipe = with_model(
            "headwise, the recipe, " + recipe.train.precision, recipe.train.precision, recipe.model
        )
        contenders = [
            first,
            theirs("nanoGPT, bfloat16", given.nanogpt, text, vocab, True, marks),
            with_model("headwise, nanoGPT's architecture, float32", "float32"),
            with_model("headwise, nanoGPT's architecture, bfloat16", "bfloat16"),
            with_model("headwise, the recipe, float32", "float32", recipe.model),
            by_recipe,
        ]
        race(contenders, [given.rounds + 3] * len(contenders))
        print(f"medians of {given.rounds} rounds after 3 of warm-up")
        print("\n".join(lines(contenders, 3)))
        if not given.train:
            return
        speed = statistics.median(first.took[3:]) / statistics.median(by_recipe.took[3:])
        most = int(STEPS * speed)
        longer = replace(recipe, train=replace(recipe.train, max_steps=most))
        contenders = [
            theirs("nanoGPT, float32", given.nanogpt, text, vocab, False, marks),
            ours("headwise, the recipe", recipe, files),
            ours("headwise, the recipe for nanoGPT's time", longer, files),
        ]
        race(contenders, [STEPS, recipe.train.max_steps, most])
        for contender in contenders:
            print(
                f"{contender.name:<46}{len(contender.took):>6,} steps in {sum(contender.took):6.1f} s  "
                f"validation loss {held_out_loss(contender, held_out):.4f}"
            )


if __name__ == "__main__":
    main()
