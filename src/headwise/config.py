"""What a run is made of: frozen dataclasses that refuse every combination that cannot work.

This file imports neither torch nor numpy, so that a mistyped option is answered at once.
A recipe (YAML) and the command line fill these classes; `RunConfig` is the whole of a recipe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from headwise.errors import ConfigError

LANGUAGES = ("de", "zh", "fr", "ja")


def _require(claim: bool, message: str) -> None:
    if not claim:
        raise ConfigError(message)


def _at_least(low: float, **values: float) -> None:
    for name, value in values.items():
        # refuses NaN too; math.isfinite would overflow on an int of 400 digits
        _require(low <= value < math.inf, f"{name} must be at least {low}: got {value}")


def _check_types(config: object) -> None:
    """Refuse what Python would let pass and torch would not, such as 16.0 for a whole number."""
    for item in fields(config):  # pyright: ignore[reportArgumentType]
        value: object = getattr(config, item.name)
        if value is None and "None" in str(item.type):
            continue
        kind = str(item.type).partition(" ")[0]
        is_bool = isinstance(value, bool)
        if kind == "int":
            # __index__: whatever counts as a whole number, such as numpy's
            is_right, expected = hasattr(value, "__index__") and not is_bool, "a whole number"
        elif kind == "float":
            is_right, expected = hasattr(value, "__float__") and not is_bool, "a number"
        elif kind == "bool":
            is_right, expected = is_bool, "True or False"
        else:
            continue
        _require(is_right, f"{item.name} must be {expected}: got {value!r}")


def _probability(**values: float) -> None:
    for name, value in values.items():
        _require(0 <= value < 1, f"{name} must be at least 0 and below 1: got {value}; 0 turns it off")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    _require(value in allowed, f"{name} must be one of {', '.join(allowed)}: got {value!r}")


def expanded(name: str) -> Path:
    """A path as a shell would take it: a leading ~ is the home directory, where there is one."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~ of a user that does not exist
        return Path(name)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of an encoder-decoder Transformer; the defaults are the paper's base model.

    Attention Is All You Need, table 3 (N = 6, d_model = 512, d_ff = 2048, h = 8, P_drop = 0.1).

    Args:
        vocab_size: entries of the joint vocabulary; in a recipe left out, the tokenizer decides.
        d_model: width of every position's vector.
        num_heads: attention heads; divides d_model.
        d_ff: width inside the feed-forward layer; left out, 4 * d_model.
        num_encoder_layers: encoder blocks.
        num_decoder_layers: decoder blocks.
        norm: "post" as in the paper (norm after the addition), "pre" with a final norm.
        norm_eps: added to the variance, inside the root.
        activation: of the feed-forward layer.
        positions: "sinusoidal" as in the paper, "learned", or "none".
        max_length: longest sequence, in tokens, that learned positions and decoding allow.
        dropout: on each sub-layer's output and on the sum of embedding and position (the paper's).
        attention_dropout: on the attention weights; off in the paper's text.
        feedforward_dropout: between the feed-forward layer's two products; off in the paper's text.
        attention_bias: biases in the four attention projections; the paper has none.
        feedforward_bias: biases in the feed-forward layer; the paper has them.
        tie_embeddings: one matrix for source, target and output, as in the paper, section 3.4.
        scale_embedding: multiply embeddings by sqrt(d_model), as in the paper, section 3.4.
        output_gain: gain of the attention output projection's initialisation.
        pad_id: token id of padding.
    """

    vocab_size: int | None = None
    d_model: int = 512
    num_heads: int = 8
    d_ff: int | None = None
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    norm: Literal["post", "pre"] = "post"
    norm_eps: float = 1e-5
    activation: Literal["relu", "gelu"] = "relu"
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    max_length: int = 512
    dropout: float = 0.1
    attention_dropout: float = 0.0
    feedforward_dropout: float = 0.0
    attention_bias: bool = False
    feedforward_bias: bool = True
    tie_embeddings: bool = True
    scale_embedding: bool = True
    output_gain: Literal["one", "inverse-sqrt-heads"] = "one"
    pad_id: int = 0

    def __post_init__(self) -> None:
        _check_types(self)
        _at_least(
            1,
            d_model=self.d_model,
            num_heads=self.num_heads,
            num_encoder_layers=self.num_encoder_layers,
            num_decoder_layers=self.num_decoder_layers,
            max_length=self.max_length,
        )
        if self.d_ff is not None:
            _at_least(1, d_ff=self.d_ff)
        if self.vocab_size is not None:
            _at_least(2, vocab_size=self.vocab_size)
            _require(
                self.pad_id < self.vocab_size,
                f"pad_id must lie inside the vocabulary: got pad_id={self.pad_id}, "
                f"vocab_size={self.vocab_size}; ids run from 0 to {self.vocab_size - 1}",
            )
        _at_least(0, pad_id=self.pad_id)
        _require(
            self.d_model % self.num_heads == 0,
            f"num_heads must divide d_model: got d_model={self.d_model}, num_heads={self.num_heads}; "
            f"{_nearest_divisor(self.d_model, self.num_heads)} divides it",
        )
        _one_of("norm", self.norm, ("post", "pre"))
        _one_of("activation", self.activation, ("relu", "gelu"))
        _one_of("positions", self.positions, ("sinusoidal", "learned", "none"))
        _one_of("output_gain", self.output_gain, ("one", "inverse-sqrt-heads"))
        _require(
            self.positions != "sinusoidal" or self.d_model % 2 == 0,
            f"sinusoidal positions pair each sine with a cosine and need an even d_model: "
            f"got {self.d_model}; use {self.d_model + 1} or positions=learned",
        )
        _require(
            0 < self.norm_eps < 1, f"norm_eps must lie between 0 and 1: got {self.norm_eps}; 1e-5 is usual"
        )
        _probability(
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            feedforward_dropout=self.feedforward_dropout,
        )

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.num_heads

    @property
    def width_ff(self) -> int:
        """d_ff, or the paper's 4 * d_model where it was left out."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    def with_vocabulary(self, vocab_size: int, pad_id: int) -> ModelConfig:
        """The same model for the given tokenizer; a vocab_size that was set and differs is refused."""
        _require(
            self.vocab_size in (None, vocab_size),
            f"model.vocab_size must equal the tokenizer's: got {self.vocab_size}, the tokenizer has "
            f"{vocab_size}; leave model.vocab_size out and set data.vocab_size",
        )
        return replace(self, vocab_size=vocab_size, pad_id=pad_id)


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [d for d in range(1, min(number, 4096) + 1) if number % d == 0]
    return min(divisors, key=lambda d: (abs(d - wanted), d))


@dataclass(frozen=True)
class DatesConfig:
    """Dates, times, numbers, currencies and percentages to translate: made up, never downloaded.

    Args:
        languages: target languages, each from de, zh, fr, ja.
        train_size: training pairs.
        validation_size: validation pairs.
        test_size: test pairs, of values never seen in training in any style.
        seed: of the generator.
    """

    languages: tuple[str, ...] = ("de", "zh")
    train_size: int = 60_000
    validation_size: int = 500
    test_size: int = 3_000
    seed: int = 1

    def __post_init__(self) -> None:
        _check_types(self)
        _at_least(
            1, train_size=self.train_size, validation_size=self.validation_size, test_size=self.test_size
        )
        _at_least(0, seed=self.seed)
        _require(
            len(self.languages) > 0, f"languages must name at least one of {', '.join(LANGUAGES)}: got none"
        )
        for language in self.languages:
            _one_of("languages", language, LANGUAGES)
        _require(
            len(set(self.languages)) == len(self.languages),
            f"languages must differ from each other: got {', '.join(self.languages)}",
        )


@dataclass(frozen=True)
class ParallelConfig:
    """Aligned text files: line n of one translates line n of the other; plain or .gz, UTF-8.

    Args:
        folder: where the files below are; a name with a leading slash stands by itself.
        train_source: source side of the training text.
        train_target: target side of the training text.
        validation_source: source side of the validation text.
        validation_target: target side of the validation text.
        test_source: optional; only compared with the training text, so that an overlap is told.
        max_length: longer pairs (in tokens, either side) are left out of training, and counted.
    """

    folder: str = "."
    train_source: str = "train.en.gz"
    train_target: str = "train.de.gz"
    validation_source: str = "val.en.gz"
    validation_target: str = "val.de.gz"
    test_source: str | None = None
    max_length: int = 128

    def __post_init__(self) -> None:
        _check_types(self)
        _at_least(2, max_length=self.max_length)


@dataclass(frozen=True)
class DataConfig:
    """Where the text comes from and how it becomes tokens.

    Args:
        kind: "dates" (made from a seed) or "parallel" (two aligned files).
        vocab_size: most entries that the joint subword vocabulary may have (BPE).
        dates: settings of kind dates.
        parallel: settings of kind parallel.
    """

    kind: Literal["dates", "parallel"] = "dates"
    vocab_size: int = 512
    dates: DatesConfig = field(default_factory=DatesConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)

    def __post_init__(self) -> None:
        _check_types(self)
        _one_of("data.kind", self.kind, ("dates", "parallel"))
        _at_least(16, vocab_size=self.vocab_size)
        _require(  # the trainer makes room for all of them at once
            self.vocab_size <= 1_000_000,
            f"data.vocab_size must be at most 1000000: got {self.vocab_size}; some thousands are usual",
        )


@dataclass(frozen=True)
class TrainConfig:
    """How the weights are found.

    Args:
        seed: of initialisation, order of the data and dropout.
        max_steps: optimizer steps of the whole run.
        batch_tokens: most tokens of one batch, counted with padding on the longer side.
        accumulate: batches whose gradients are added before each optimizer step.
        optimizer: "adam" as in the paper or "adamw" (decoupled weight decay).
        learning_rate: the highest rate; left out, the paper's d_model^-0.5 * warmup_steps^-0.5.
        beta1: Adam's decay of the first moment.
        beta2: Adam's decay of the second moment; 0.98 in the paper.
        adam_eps: added to the root of the second moment; 1e-9 in the paper.
        weight_decay: of matrices only, never of biases, norms or embeddings.
        schedule: "inverse-sqrt" as in the paper, section 5.3, "cosine", or "constant" after warm-up.
        warmup_steps: steps of linear rise.
        final_rate: where cosine ends, as a share of the highest rate.
        label_smoothing: share of the target probability spread evenly over the vocabulary; 0.1 in the paper.
        clip_norm: longest gradient; 0 turns clipping off.
        precision: "float32", or "bfloat16" for autocast of the matrix products.
        compile: the training pass through torch.compile; validation and decoding run without.
        threads: CPU threads; left out, torch decides.
        log_every: steps between lines of metrics.
        validate_every: steps between validations; each also saves.
        save_every: steps between saves of the training state; left out, as validate_every.
        patience: validations without improvement before the run stops; 0 never stops early.
        watch: what has to improve: "loss" or "bleu" of the validation set.
        average_last: how many of the last validated weights are averaged at the end; 1 keeps the best.
        samples: sample translations printed at each validation.
    """

    seed: int = 1
    max_steps: int = 10_000
    batch_tokens: int = 4_096
    accumulate: int = 1
    optimizer: Literal["adam", "adamw"] = "adam"
    learning_rate: float | None = None
    beta1: float = 0.9
    beta2: float = 0.98
    adam_eps: float = 1e-9
    weight_decay: float = 0.0
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    warmup_steps: int = 4_000
    final_rate: float = 0.0
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    precision: Literal["float32", "bfloat16"] = "float32"
    compile: bool = False
    threads: int | None = None
    log_every: int = 50
    validate_every: int = 1_000
    save_every: int | None = None
    patience: int = 0
    watch: Literal["loss", "bleu"] = "loss"
    average_last: int = 1
    samples: int = 3

    def __post_init__(self) -> None:
        _check_types(self)
        _at_least(
            1,
            max_steps=self.max_steps,
            batch_tokens=self.batch_tokens,
            accumulate=self.accumulate,
            log_every=self.log_every,
            validate_every=self.validate_every,
            average_last=self.average_last,
        )
        _at_least(
            0, seed=self.seed, warmup_steps=self.warmup_steps, patience=self.patience, samples=self.samples
        )
        _at_least(0, weight_decay=self.weight_decay, clip_norm=self.clip_norm)
        _require(self.seed < 2**63, f"seed must be below 2**63: got {self.seed}")
        if self.save_every is not None:
            _at_least(1, save_every=self.save_every)
        if self.threads is not None:
            _at_least(1, threads=self.threads)
            _require(
                self.threads <= 1024, f"threads must be at most 1024: got {self.threads}; one a core is usual"
            )
        if self.learning_rate is not None:
            _require(
                0 < self.learning_rate < math.inf,
                f"learning_rate must be above 0 and finite: got {self.learning_rate}",
            )
        _require(
            self.learning_rate is not None or self.warmup_steps > 0,
            "learning_rate can only be left out with a warm-up (the paper's rate is a function of "
            "warmup_steps): got warmup_steps=0; set learning_rate",
        )
        _require(
            0 < self.adam_eps < 1,
            f"adam_eps must lie between 0 and 1: got {self.adam_eps}; 1e-9 is the paper's",
        )
        _probability(beta1=self.beta1, beta2=self.beta2, label_smoothing=self.label_smoothing)
        _require(
            0 <= self.final_rate <= 1,
            f"final_rate must lie between 0 and 1: got {self.final_rate}; 0.1 ends at a tenth of the highest",
        )
        _one_of("optimizer", self.optimizer, ("adam", "adamw"))
        _one_of("schedule", self.schedule, ("inverse-sqrt", "cosine", "constant"))
        _one_of("precision", self.precision, ("float32", "bfloat16"))
        _one_of("watch", self.watch, ("loss", "bleu"))
        _require(
            self.optimizer == "adamw" or self.weight_decay == 0,
            f"weight_decay needs optimizer=adamw (Adam would divide it by the second moment): "
            f"got optimizer={self.optimizer}, weight_decay={self.weight_decay}",
        )
        _require(
            self.warmup_steps <= self.max_steps or self.schedule == "inverse-sqrt",
            f"warmup_steps must not pass max_steps: got warmup_steps={self.warmup_steps}, "
            f"max_steps={self.max_steps}; the {self.schedule} schedule would never begin; lower warmup_steps",
        )


@dataclass(frozen=True)
class RunConfig:
    """A whole recipe.

    Args:
        run: the directory that holds the run: configuration, tokenizer, weights, state, metrics.
        model: the Transformer.
        data: the text.
        train: the training.
    """

    run: str = "runs/dates"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        _check_types(self)
        _require(self.run.strip() != "", "run must name a directory: got an empty name; runs/NAME is usual")
        _require(
            self.data.kind != "parallel" or self.data.parallel.max_length <= self.model.max_length,
            f"data.parallel.max_length must not pass model.max_length: got "
            f"{self.data.parallel.max_length} and {self.model.max_length}; raise model.max_length",
        )

    @property
    def folder(self) -> Path:
        """The run's directory."""
        return expanded(self.run)
