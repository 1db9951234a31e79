"""A whole recipe: the model, the data and the training, and the directory that keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headwise.config.data import DataConfig
from headwise.config.model import ModelConfig
from headwise.config.rules import check_types, expanded, require
from headwise.config.train import TrainConfig


@dataclass(frozen=True)
class RunConfig:
    """A whole recipe.

    Args:
        run: the directory that holds the run: configuration, tokenizer, weights, state, metrics.
        model: the Transformer.
        data: what is learned from.
        train: the training.
    """

    run: str = "runs/dates"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_types(self)
        require(self.run.strip() != "", "run must name a directory: got an empty name; runs/NAME is usual")
        for path, length in self._lengths():
            require(
                length <= self.model.max_length,
                f"{path} must not pass model.max_length: got {length} and {self.model.max_length}; "
                "raise model.max_length",
            )
        require(
            self.data.kind != "text" or self.data.text.window <= self.train.batch_tokens,
            "train.batch_tokens must hold at least one data.text.window: got "
            f"{self.train.batch_tokens} and {self.data.text.window}; raise train.batch_tokens",
        )
        self._check_stacks()
        can_watch = {"loss", "bleu"} if self.is_translation else {"loss"}
        can_watch |= {"accuracy"} if self.data.kind != "text" else set()
        require(
            self.train.watch in can_watch,
            f"train.watch must be one of {', '.join(sorted(can_watch))} with data.kind {self.data.kind}: "
            f"got {self.train.watch!r}",
        )

    def _lengths(self) -> list[tuple[str, int]]:
        """The lengths that the data ask of the model, by setting."""
        match self.data.kind:
            case "parallel":
                return [("data.parallel.max_length", self.data.parallel.max_length)]
            case "text":
                return [("data.text.window", self.data.text.window)]
            case "labelled":
                return [("data.labelled.max_length", self.data.labelled.max_length)]
            case "images":
                patches = self.model.patches.count
                if self.model.pooling == "first":
                    return [("the number of patches and the class token", patches + 1)]
                return [("the number of patches", patches)]
            case _:
                return []

    def _check_stacks(self) -> None:
        kind = self.data.kind
        encoder, decoder = self.model.num_encoder_layers, self.model.num_decoder_layers
        got = f"got model.num_encoder_layers={encoder}, model.num_decoder_layers={decoder}"
        if self.is_translation:
            require(
                encoder > 0 and decoder > 0,
                f"data.kind {kind} is translated by an encoder and a decoder: {got}; set both to 1 or more",
            )
            require(
                not self.model.parallel_blocks,
                f"model.parallel_blocks is for models of one stack: got true with data.kind {kind}; "
                "leave it out",
            )
        elif kind == "text":
            require(
                (encoder == 0) != (decoder == 0),
                "data.kind text is continued by decoder layers alone or filled in by encoder layers alone: "
                f"{got}; set one of them to 0",
            )
        else:
            require(
                encoder > 0 and decoder == 0,
                f"data.kind {kind} is classified by encoder layers alone: {got}; "
                "set model.num_decoder_layers to 0",
            )

    @property
    def is_translation(self) -> bool:
        """Whether the data are pairs of sentences."""
        return self.data.kind in ("dates", "parallel")

    @property
    def folder(self) -> Path:
        """The run's directory."""
        return expanded(self.run)
