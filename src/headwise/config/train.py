"""How the weights are found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headwise.config.rules import at_least, check_types, one_of, probability, require


@dataclass(frozen=True)
class TrainConfig:
    """How the weights are found.

    Args:
        seed: of initialisation, order of the data and dropout.
        max_steps: optimizer steps of the whole run.
        batch_tokens: most tokens (of pictures: patches) of one batch, with padding, on the longer side.
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
        watch_every: steps between those in which norms, attention, gradients and updates are measured for
            report.html; 0 measures none.
        patience: validations without improvement before the run stops; 0 never stops early.
        watch: what has to improve: "loss", "accuracy" or, of translations, "bleu" of the validation set.
        average_last: how many of the last validated weights are averaged at the end; 1 keeps the best.
        samples: sample translations (or continuations) printed at each validation.
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
    watch_every: int = 50
    patience: int = 0
    watch: Literal["loss", "bleu", "accuracy"] = "loss"
    average_last: int = 1
    samples: int = 3

    def __post_init__(self) -> None:
        check_types(self)
        at_least(
            1,
            max_steps=self.max_steps,
            batch_tokens=self.batch_tokens,
            accumulate=self.accumulate,
            log_every=self.log_every,
            validate_every=self.validate_every,
            average_last=self.average_last,
        )
        at_least(
            0,
            seed=self.seed,
            warmup_steps=self.warmup_steps,
            watch_every=self.watch_every,
            patience=self.patience,
            samples=self.samples,
        )
        at_least(0, weight_decay=self.weight_decay, clip_norm=self.clip_norm)
        require(self.seed < 2**63, f"seed must be below 2**63: got {self.seed}")
        if self.save_every is not None:
            at_least(1, save_every=self.save_every)
        if self.threads is not None:
            at_least(1, threads=self.threads)
            require(
                self.threads <= 1024, f"threads must be at most 1024: got {self.threads}; one a core is usual"
            )
        if self.learning_rate is not None:
            require(
                0 < self.learning_rate < math.inf,
                f"learning_rate must be above 0 and finite: got {self.learning_rate}",
            )
        require(
            self.learning_rate is not None or self.warmup_steps > 0,
            "learning_rate can only be left out with a warm-up (the paper's rate is a function of "
            "warmup_steps): got warmup_steps=0; set learning_rate",
        )
        require(
            0 < self.adam_eps < 1,
            f"adam_eps must lie between 0 and 1: got {self.adam_eps}; 1e-9 is the paper's",
        )
        probability(beta1=self.beta1, beta2=self.beta2, label_smoothing=self.label_smoothing)
        require(
            0 <= self.final_rate <= 1,
            f"final_rate must lie between 0 and 1: got {self.final_rate}; 0.1 ends at a tenth of the highest",
        )
        one_of("optimizer", self.optimizer, ("adam", "adamw"))
        one_of("schedule", self.schedule, ("inverse-sqrt", "cosine", "constant"))
        one_of("precision", self.precision, ("float32", "bfloat16"))
        one_of("watch", self.watch, ("loss", "bleu", "accuracy"))
        require(
            self.optimizer == "adamw" or self.weight_decay == 0,
            f"weight_decay needs optimizer=adamw (Adam would divide it by the second moment): "
            f"got optimizer={self.optimizer}, weight_decay={self.weight_decay}",
        )
        require(
            self.warmup_steps <= self.max_steps or self.schedule == "inverse-sqrt",
            f"warmup_steps must not pass max_steps: got warmup_steps={self.warmup_steps}, "
            f"max_steps={self.max_steps}; the {self.schedule} schedule would never begin; lower warmup_steps",
        )
