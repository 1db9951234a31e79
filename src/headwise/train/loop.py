"""Training from the first line of text to the final weights, in steps that can be taken up again."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType

import torch
from torch import nn

from headwise.checkpoint.run import RunFiles, only_one, open_run, save_model
from headwise.checkpoint.weights import fill_model, load_tensors, model_tensors, save_tensors
from headwise.config import RunConfig
from headwise.data.batches import Batches
from headwise.data.corpus import Corpus, encode_pairs, load_corpus
from headwise.data.tokenizer import Tokenizer
from headwise.errors import Stopped, TrainingError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.train.average import average_into
from headwise.train.batch import Batch, Encoded
from headwise.train.loss import cross_entropy, supervised
from headwise.train.metrics import Metrics
from headwise.train.optim import make_optimizer, set_learning_rate
from headwise.train.progress import View
from headwise.train.schedule import learning_rate
from headwise.train.state import Progress, load_state, save_state
from headwise.train.validate import Validation, validate


@dataclass(frozen=True)
class TrainResult:
    """What came of a run: validation of the final weights; loss in nats a token."""

    files: RunFiles
    step: int
    validation: Validation


def train(config: RunConfig, view: View | None = None) -> TrainResult:
    """Train as the configuration says, or go on where the run in its directory was interrupted.

    Errors: RunError (the directory), DataError (the text), StorageError (the disk), TrainingError
    (a loss that is not finite), Stopped (Ctrl-C; everything is saved).
    Law: stopped at any moment, even by SIGKILL, and called again, the run ends with the same bits
    as if it had never stopped (same machine, same number of threads).
    """
    view = view or View()
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    files = open_run(config)
    with only_one(files):
        trainer = _Trainer(config, files, view)
        with _interrupt_flag() as interrupted:
            return trainer.run(interrupted)


class _Trainer:
    def __init__(self, config: RunConfig, files: RunFiles, view: View) -> None:
        self.config, self.files, self.view = config, files, view
        corpus = load_corpus(config.data)
        for warning in corpus.warnings:
            view.warn(warning)
        self.tokenizer = self._tokenizer(corpus)
        self.samples = list(zip(corpus.validation.source, corpus.validation.target, strict=True))
        self.train_data = self._encode(corpus, "train")
        self.validation_data = self._encode(corpus, "validation")
        torch.manual_seed(config.train.seed)
        self.model = EncoderDecoder(config.model.with_vocabulary(self.tokenizer.vocab_size, self.tokenizer.pad_id))
        self.hidden = torch.compile(self.model.hidden, dynamic=True) if config.train.compile else self.model.hidden
        self.optimizer = make_optimizer(self.model, config.train)
        self.data_fingerprint = _fingerprint(self.train_data, self.validation_data)
        self.progress = Progress()
        if files.training.exists():
            self.progress = load_state(files.training, self.model, self.optimizer, self.data_fingerprint)
            view.line(f"going on after step {self.progress.step} of {files.folder}")
        self.metrics = Metrics(files.metrics, self.progress.metrics_bytes, self.progress.step)

    def run(self, interrupted: threading.Event) -> TrainResult:
        config, progress = self.config.train, self.progress
        self._describe()
        upcoming = self._upcoming()
        began, began_tokens = time.monotonic(), progress.total_tokens
        try:
            with self.view.bar(config.max_steps, progress.step):
                while progress.step < config.max_steps and not progress.has_stopped:
                    if interrupted.is_set():
                        self._save()
                        raise Stopped(
                            f"stopped after step {progress.step}, everything is saved in {self.files.folder}; "
                            "the same command goes on from there"
                        )
                    loss, norm = self._step([next(upcoming) for _ in range(config.accumulate)])
                    rate = learning_rate(progress.step, config, self.config.model.d_model)
                    speed = (progress.total_tokens - began_tokens) / (time.monotonic() - began)
                    self.view.advance(progress.step, loss, rate, speed)
                    if progress.step % config.log_every == 0:
                        self._log(rate, norm, speed, time.monotonic() - began)
                    is_last = progress.step == config.max_steps
                    if progress.step % config.validate_every == 0 or is_last:
                        self._validate()
                        self._save()
                    elif progress.step % (config.save_every or config.validate_every) == 0:
                        self._save()
            return self._finish()
        finally:
            self.metrics.close()

    def _step(self, batches: list[Batch]) -> tuple[float, float]:
        """One optimizer step; the loss in nats a token, and the length of the gradient before clipping."""
        config, progress, pad_id = self.config.train, self.progress, self.tokenizer.pad_id
        self.model.train()
        tokens = sum(int((batch.labels != pad_id).sum()) for batch in batches)
        total = 0.0
        for batch in batches:
            with self._precision():
                hidden, labels = supervised(self.hidden(batch.source, batch.decoder_input), batch.labels, pad_id)
                loss = cross_entropy(hidden, self.model.output.weight, labels, config.label_smoothing)
            total += loss.item()
            (loss / tokens).backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_norm or math.inf).item()
        progress.step += 1
        if not (math.isfinite(total) and math.isfinite(norm)):
            kept = "its last good state is kept" if self.files.training.exists() else "nothing was saved yet"
            raise TrainingError(
                f"step {progress.step}: expected a finite loss and gradient, got loss {total / tokens:g} and "
                f"gradient norm {norm:g}; {kept} in {self.files.folder}; lower train.learning_rate or "
                "lengthen train.warmup_steps in a new --run"
            )
        set_learning_rate(self.optimizer, learning_rate(progress.step, config, self.config.model.d_model))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        progress.loss_sum += total
        progress.tokens += tokens
        progress.total_tokens += tokens
        return total / tokens, norm

    def _log(self, rate: float, norm: float, speed: float, seconds: float) -> None:
        progress = self.progress
        loss = progress.loss_sum / progress.tokens
        progress.loss_sum, progress.tokens = 0.0, 0
        self.metrics.write(
            progress.step,
            epoch=progress.epoch,
            loss=loss,
            learning_rate=rate,
            gradient_norm=norm,
            tokens=progress.total_tokens,
            tokens_per_second=round(speed, 1),
            seconds=round(seconds, 2),
        )
        self.view.logged(progress.step, loss, rate, speed)

    def _validate(self) -> None:
        config, progress = self.config.train, self.progress
        result = self._measure()
        self.metrics.write(progress.step, **result.metrics("validation"))
        self.view.line(f"step {progress.step}  {result.summary()}")
        for sample in result.samples:
            self.view.line(f"    {sample}")
        path = self.files.checkpoint(progress.step)
        save_tensors(path, model_tensors(self.model), {"kind": "checkpoint", "step": progress.step})
        progress.validated.append(progress.step)
        value = result.loss if config.watch == "loss" else -(result.bleu or 0.0)
        if progress.best is None or value < progress.best:
            progress.best, progress.best_step, progress.waited = value, progress.step, 0
            save_model(self.files.model, self.model, progress.step)
        else:
            progress.waited += 1
            if config.patience and progress.waited >= config.patience:
                progress.has_stopped = True
                self.view.line(f"no better {config.watch} for {config.patience} validations: stopping early")

    def _measure(self) -> Validation:
        config = self.config.train
        with self._precision():
            return validate(self.model, self.tokenizer, self.validation_data, self.samples, config)

    def _save(self) -> None:
        progress = self.progress
        self.metrics.sync()
        progress.metrics_bytes = self.metrics.bytes
        wanted = set(progress.validated[-self.config.train.average_last :])
        dropped, progress.validated = progress.validated, sorted(wanted)
        save_state(self.files.training, self.model, self.optimizer, progress, self.data_fingerprint)
        for step in set(dropped) - wanted:  # only after the state that no longer names them is safe
            self.files.checkpoint(step).unlink(missing_ok=True)

    def _finish(self) -> TrainResult:
        """Choose the final weights: the mean of the last checkpoints, or the best of all."""
        progress = self.progress
        if self.config.train.average_last > 1:
            average_into(self.model, [self.files.checkpoint(step) for step in progress.validated])
            save_model(self.files.model, self.model, progress.step)
            what = f"mean of the checkpoints after steps {', '.join(map(str, progress.validated))}"
        else:
            fill_model(self.model, load_tensors(self.files.model)[0], self.files.model)
            what = f"best weights, of step {progress.best_step}"
        result = self._measure()
        self.metrics.write(progress.step, **result.metrics("final"))
        self.metrics.sync()
        self.view.line(f"final  {result.summary()}  ({what}), in {self.files.model}")
        return TrainResult(self.files, progress.step, result)

    def _upcoming(self) -> Iterator[Batch]:
        """Batches from where the run stands, for ever; progress points at the one after."""
        progress, data = self.progress, self.train_data
        while True:
            rows = data.batches.epoch(progress.epoch)
            while progress.batch < len(rows):
                progress.batch += 1
                yield data.batch(rows[progress.batch - 1].tolist(), self.tokenizer)
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _tokenizer(self, corpus: Corpus) -> Tokenizer:
        if not self.files.tokenizer.exists():
            text = [*corpus.train.source, *corpus.train.target]
            Tokenizer.train(text, self.config.data.vocab_size, corpus.tags).save(self.files.tokenizer)
        return Tokenizer.load(self.files.tokenizer)

    def _encode(self, corpus: Corpus, part: str) -> Encoded:
        pairs = corpus.train if part == "train" else corpus.validation
        is_parallel = self.config.data.kind == "parallel"
        longest = self.config.data.parallel.max_length if is_parallel else self.config.model.max_length
        source, target, warnings = encode_pairs(pairs, self.tokenizer, longest)
        for warning in warnings:
            self.view.warn(f"{part}: {warning}")
        lengths = ([len(row) + 1 for row in source], [len(row) + 1 for row in target])  # each with its end mark
        return Encoded(source, target, Batches(*lengths, self.config.train.batch_tokens, self.config.train.seed))

    def _precision(self) -> torch.autocast | nullcontext[None]:
        is_half = self.config.train.precision == "bfloat16"
        return torch.autocast("cpu", torch.bfloat16) if is_half else nullcontext()

    def _describe(self) -> None:
        parameters = sum(p.numel() for p in self.model.parameters())
        batches = self.train_data.batches.epoch(0)
        self.view.line(
            f"{parameters:,} parameters, vocabulary {self.tokenizer.vocab_size:,}, "
            f"{len(self.train_data.source):,} training pairs in {len(batches):,} batches an epoch, "
            f"{self.train_data.batches.padding_share(batches):.1%} padding"
        )


@contextmanager
def _interrupt_flag() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag that is read between steps; a second one interrupts at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def note(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)


def _fingerprint(*parts: Encoded) -> str:
    content = json.dumps([[part.source, part.target] for part in parts]).encode()
    return hashlib.sha256(content).hexdigest()[:16]
