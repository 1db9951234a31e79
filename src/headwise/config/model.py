"""The shape of a Transformer, as the paper has it and as its descendants changed it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from headwise.config.rules import at_least, check_types, one_of, probability, require
from headwise.errors import ConfigError

POSITIONS = ("sinusoidal", "learned", "rotary", "alibi", "relative", "none")
SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary positions: how fast each pair of coordinates turns, and how the turning is slowed.

    Args:
        base: the slowest pair turns by about 1 / base a position; 10000 in RoFormer, 500000 in LLaMA 3.
        share: share of each head's coordinates that turn, from the first on.
        scaling: how positions past the trained length are brought back inside it: "linear" (position
            interpolation), "ntk" (a larger base), "yarn", "llama3", or "none".
        factor: how many times longer than original_length the input may become.
        original_length: positions that the weights were first trained on.
        fast_turns: yarn, llama3: pairs with more turns than this within original_length stay as they are
            (32 in YaRN, 4 in LLaMA 3).
        slow_turns: yarn, llama3: pairs with fewer turns than this are slowed by the whole factor.
        attention_factor: yarn: cosine and sine are multiplied by it; left out, 0.1 ln(factor) + 1.
    """

    base: float = 10_000.0
    share: float = 1.0
    scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none"
    factor: float = 1.0
    original_length: int = 2_048
    fast_turns: float = 32.0
    slow_turns: float = 1.0
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(1 < self.base < math.inf, f"rotary.base must be above 1: got {self.base}; 10000 is usual")
        require(0 < self.share <= 1, f"rotary.share must lie in (0, 1]: got {self.share}; 1 turns all")
        one_of("rotary.scaling", self.scaling, SCALINGS)
        require(
            1 <= self.factor < math.inf,
            f"rotary.factor must be at least 1: got {self.factor}; 1 scales nothing",
        )
        at_least(1, original_length=self.original_length)
        require(
            0 < self.slow_turns < self.fast_turns < math.inf,
            f"rotary.slow_turns must be above 0 and below rotary.fast_turns: got {self.slow_turns} and "
            f"{self.fast_turns}; 1 and 32 are YaRN's",
        )
        if self.attention_factor is not None:
            require(
                0 < self.attention_factor < math.inf,
                f"rotary.attention_factor must be above 0: got {self.attention_factor}; leave it out",
            )


@dataclass(frozen=True)
class PatchConfig:
    """Images as rows of patches: An Image is Worth 16x16 Words, section 3.1.

    Args:
        height: pixels from top to bottom.
        width: pixels from left to right.
        size: pixels of a patch's side; divides both.
        channels: numbers a pixel: 1 grey, 3 colour.
    """

    height: int = 224
    width: int = 224
    size: int = 16
    channels: int = 3

    def __post_init__(self) -> None:
        check_types(self)
        at_least(1, height=self.height, width=self.width, size=self.size, channels=self.channels)
        require(
            self.height % self.size == 0 and self.width % self.size == 0,
            f"patches.size must divide the image: got {self.size} for {self.height} x {self.width} pixels; "
            f"{math.gcd(self.height, self.width)} divides both sides",
        )

    @property
    def count(self) -> int:
        """Patches of an image."""
        return (self.height // self.size) * (self.width // self.size)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a Transformer; the defaults are the paper's base model.

    Attention Is All You Need, table 3 (N = 6, d_model = 512, d_ff = 2048, h = 8, P_drop = 0.1). Without
    encoder layers it is a decoder-only model such as GPT, without decoder layers an encoder-only one such
    as BERT.

    Args:
        vocab_size: entries of the joint vocabulary; in a recipe left out, the tokenizer decides.
        d_model: width of every position's vector.
        num_heads: attention heads; divides d_model unless d_head is set.
        num_kv_heads: heads of keys and values, each shared by num_heads / num_kv_heads query heads; left out,
            as many as num_heads (1: multi-query attention).
        d_head: width of one head; left out, d_model / num_heads.
        d_ff: width inside the feed-forward layer; left out, 4 * d_model.
        num_encoder_layers: encoder blocks.
        num_decoder_layers: decoder blocks.
        norm: "post" as in the paper (norm after the addition), "pre" with a final norm.
        norm_kind: "layer" (LayerNorm) or "rms" (RMSNorm, without mean and bias, as in LLaMA).
        norm_eps: added to the variance, inside the root.
        embedding_norm: a norm between the embeddings and the first block, as in BERT.
        qk_norm: a norm on each head's queries and keys, as in Qwen3.
        activation: of the feed-forward layer.
        gated: a second product opens and closes the first's width: SwiGLU with silu, GEGLU with gelu.
        parallel_blocks: attention and feed-forward side by side on the same input, as in GPT-NeoX.
        positions: "sinusoidal" as in the paper, "learned", "rotary", "alibi", "relative" (T5's), or "none".
        max_length: longest sequence, in tokens, that learned positions and decoding allow.
        rotary: settings of rotary positions.
        relative_buckets: relative positions: how many distances are told apart.
        relative_distance: relative positions: distances from here on share the last bucket.
        window: how many positions back a causal query may look, itself counted, as in Mistral; left out, all.
        scale_attention: divide scores by sqrt(d_head), as in the paper; T5 does not.
        dropout: on each sub-layer's output and on the sum of embedding and position (the paper's).
        attention_dropout: on the attention weights; off in the paper's text.
        feedforward_dropout: between the feed-forward layer's two products; off in the paper's text.
        attention_bias: biases in the projections to queries, keys and values; the paper has none.
        attention_output_bias: a bias in the attention's output projection; left out, as attention_bias.
        feedforward_bias: biases in the feed-forward layer; the paper has them.
        output_bias: a bias for each token of the vocabulary; the paper has none.
        tie_embeddings: one matrix for source, target and output, as in the paper, section 3.4.
        tie_output: one matrix for target and output (those of a model with one stack, too); left out, as
            tie_embeddings. T5 v1.1 ties source and target alone.
        scale_embedding: multiply embeddings by sqrt(d_model), as in the paper, section 3.4.
        scale_output: divide what makes the logits by sqrt(d_model), as T5 does where embeddings are tied.
        num_segments: kinds of segments that have an embedding of their own, as in BERT; 0 for none.
        pooling: what stands for a whole text or image where one is classified: "first" (the first position:
            BERT's <cls>, ViT's class token) or "mean".
        pooling_activation: of the layer before a text's classes: "tanh" as in BERT, "relu" as in DistilBERT.
        num_classes: what a classifier tells apart; in a recipe left out, the data decide.
        patches: settings of image patches.
        output_gain: gain of the attention output projection's initialisation.
        pad_id: token id of padding; null where no id means padding.
    """

    vocab_size: int | None = None
    d_model: int = 512
    num_heads: int = 8
    num_kv_heads: int | None = None
    d_head: int | None = None
    d_ff: int | None = None
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    norm: Literal["post", "pre"] = "post"
    norm_kind: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-5
    embedding_norm: bool = False
    qk_norm: bool = False
    activation: Literal["relu", "gelu", "gelu-tanh", "silu"] = "relu"
    gated: bool = False
    parallel_blocks: bool = False
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"] = "sinusoidal"
    max_length: int = 512
    rotary: RotaryConfig = field(default_factory=RotaryConfig)
    relative_buckets: int = 32
    relative_distance: int = 128
    window: int | None = None
    scale_attention: bool = True
    dropout: float = 0.1
    attention_dropout: float = 0.0
    feedforward_dropout: float = 0.0
    attention_bias: bool = False
    attention_output_bias: bool | None = None
    feedforward_bias: bool = True
    output_bias: bool = False
    tie_embeddings: bool = True
    tie_output: bool | None = None
    scale_embedding: bool = True
    scale_output: bool = False
    num_segments: int = 0
    pooling: Literal["first", "mean"] = "first"
    pooling_activation: Literal["tanh", "relu"] = "tanh"
    num_classes: int | None = None
    patches: PatchConfig = field(default_factory=PatchConfig)
    output_gain: Literal["one", "inverse-sqrt-heads"] = "one"
    pad_id: int | None = 0

    def __post_init__(self) -> None:
        check_types(self)
        at_least(1, d_model=self.d_model, num_heads=self.num_heads, max_length=self.max_length)
        at_least(0, num_encoder_layers=self.num_encoder_layers, num_decoder_layers=self.num_decoder_layers)
        require(
            self.num_encoder_layers + self.num_decoder_layers > 0,
            "a model needs at least one layer: got num_encoder_layers=0, num_decoder_layers=0; "
            "set one of them to 1 or more",
        )
        if self.d_ff is not None:
            at_least(1, d_ff=self.d_ff)
        if self.pad_id is not None:
            at_least(0, pad_id=self.pad_id)
        if self.vocab_size is not None:
            at_least(2, vocab_size=self.vocab_size)
            require(
                self.pad_id is None or self.pad_id < self.vocab_size,
                f"pad_id must lie inside the vocabulary: got pad_id={self.pad_id}, "
                f"vocab_size={self.vocab_size}; ids run from 0 to {self.vocab_size - 1}",
            )
        self._check_heads()
        self._check_positions()
        one_of("norm", self.norm, ("post", "pre"))
        one_of("norm_kind", self.norm_kind, ("layer", "rms"))
        one_of("activation", self.activation, ("relu", "gelu", "gelu-tanh", "silu"))
        one_of("pooling", self.pooling, ("first", "mean"))
        one_of("pooling_activation", self.pooling_activation, ("tanh", "relu"))
        one_of("output_gain", self.output_gain, ("one", "inverse-sqrt-heads"))
        require(
            0 < self.norm_eps < 1, f"norm_eps must lie between 0 and 1: got {self.norm_eps}; 1e-5 is usual"
        )
        require(
            self.norm == "pre" or not self.parallel_blocks,
            f"parallel_blocks needs norm=pre: got norm={self.norm}; "
            "nothing would normalise their common input",
        )
        at_least(0, num_segments=self.num_segments)
        if self.num_classes is not None:
            at_least(2, num_classes=self.num_classes)
        probability(
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            feedforward_dropout=self.feedforward_dropout,
        )

    def _check_heads(self) -> None:
        if self.d_head is None:
            require(
                self.d_model % self.num_heads == 0,
                f"num_heads must divide d_model: got d_model={self.d_model}, num_heads={self.num_heads}; "
                f"{_nearest_divisor(self.d_model, self.num_heads)} divides it",
            )
        else:
            at_least(1, d_head=self.d_head)
        if self.num_kv_heads is not None:
            at_least(1, num_kv_heads=self.num_kv_heads)
            require(
                self.num_heads % self.num_kv_heads == 0,
                f"num_kv_heads must divide num_heads: got num_heads={self.num_heads}, "
                f"num_kv_heads={self.num_kv_heads}; "
                f"{_nearest_divisor(self.num_heads, self.num_kv_heads)} divides it",
            )

    def _check_positions(self) -> None:
        one_of("positions", self.positions, POSITIONS)
        require(
            self.positions != "sinusoidal" or self.d_model % 2 == 0,
            f"sinusoidal positions pair each sine with a cosine and need an even d_model: "
            f"got {self.d_model}; use {self.d_model + 1} or positions=learned",
        )
        require(
            self.positions != "rotary" or (self.width_turned >= 2 and self.width_turned % 2 == 0),
            f"rotary positions turn pairs of coordinates and need an even width of 2 or more: got "
            f"{self.width_turned} of {self.width_head} coordinates a head; "
            "use another d_head, num_heads or rotary.share",
        )
        require(
            self.positions != "relative" or self.relative_buckets >= 4,
            f"relative_buckets must be at least 4: got {self.relative_buckets}; 32 is T5's",
        )
        require(
            self.positions != "relative" or self.relative_distance > self.relative_buckets // 2,
            f"relative_distance must pass half of relative_buckets (the near distances have one each): got "
            f"{self.relative_distance} and {self.relative_buckets}; 128 and 32 are T5's",
        )
        if self.window is not None:
            at_least(1, window=self.window)

    @property
    def width_head(self) -> int:
        """d_head, or d_model / num_heads where it was left out."""
        return self.d_model // self.num_heads if self.d_head is None else self.d_head

    @property
    def width_turned(self) -> int:
        """Coordinates of a head that rotary positions turn."""
        # no head is so wide; a width of 400 digits would overflow a float
        return int(min(self.width_head, 2**53) * self.rotary.share)

    @property
    def key_value_heads(self) -> int:
        """num_kv_heads, or num_heads where it was left out."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def width_ff(self) -> int:
        """d_ff, or the paper's 4 * d_model where it was left out."""
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def has_attention_output_bias(self) -> bool:
        """attention_output_bias, or attention_bias where it was left out."""
        return self.attention_bias if self.attention_output_bias is None else self.attention_output_bias

    @property
    def ties_output(self) -> bool:
        """tie_output, or tie_embeddings where it was left out."""
        return self.tie_embeddings if self.tie_output is None else self.tie_output

    @property
    def classes_told_apart(self) -> int:
        """num_classes, which a classifier needs. Errors: ConfigError where it was left out."""
        if self.num_classes is None:
            raise ConfigError(
                "num_classes must be set to build a classifier: got None; use the data's number of classes"
            )
        return self.num_classes

    def with_vocabulary(self, vocab_size: int, pad_id: int | None) -> ModelConfig:
        """The same model for the given tokenizer; a vocab_size that was set and differs is refused."""
        require(
            self.vocab_size in (None, vocab_size),
            f"model.vocab_size must equal the tokenizer's: got {self.vocab_size}, the tokenizer has "
            f"{vocab_size}; leave model.vocab_size out and set data.vocab_size",
        )
        return replace(self, vocab_size=vocab_size, pad_id=pad_id)


def _nearest_divisor(number: int, wanted: int) -> int:
    divisors = [d for d in range(1, min(number, 4096) + 1) if number % d == 0]
    return min(divisors, key=lambda d: (abs(d - wanted), d))
