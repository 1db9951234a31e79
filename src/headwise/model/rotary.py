"""Rotary positions: queries and keys are turned, so that their product knows the distance."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.config import ModelConfig, RotaryConfig


class Turns(NamedTuple):
    """What turns every coordinate at every position: its own share, and its partner's."""

    cosine: Float[Tensor, "#B 1 T turned"]
    sine: Float[Tensor, "#B 1 T turned"]  # negative for the first of each pair

    @classmethod
    def of(cls, angles: Float[Tensor, "#B 1 T pairs"], dtype: torch.dtype, factor: float = 1.0) -> Turns:
        """By these angles, one a pair, and `factor` times as long."""
        cosine, sine = angles.cos() * factor, angles.sin() * factor
        return cls(torch.cat((cosine, cosine), -1).to(dtype), torch.cat((-sine, sine), -1).to(dtype))


def turn(x: Float[Tensor, "B heads T Dh"], turns: Turns) -> Float[Tensor, "B heads T Dh"]:
    """Turn each pair of coordinates by its position's angle; coordinates past the last pair stay.

    (a, b) -> (a cos - b sin, b cos + a sin)        RoFormer, eq. 34

    Differs from the paper: coordinate i is paired with i + pairs, as in the public weights of GPT-NeoX
    and LLaMA, not with its neighbour. The two differ by a permutation of the rows of W_Q and W_K.
    Law: turn(q, m) . turn(k, n) depends on m - n alone; lengths do not change (but for YaRN's factor).
    """
    cosine, sine = turns.cosine.to(x.dtype), turns.sine.to(x.dtype)  # products may be of another precision
    width = cosine.size(-1)
    pairs, rest = x[..., :width], x[..., width:]
    partners = pairs.roll(width // 2, -1)  # each coordinate's place holds the other of its pair
    turned = torch.addcmul(pairs * cosine, partners, sine)  # [B, heads, T, turned]
    return torch.cat((turned, rest), dim=-1) if rest.size(-1) else turned  # [B, heads, T, Dh]


class Rotary(nn.Module):
    """The angle of each pair at each position.

    theta_i(t) = t * base^(-2i / d)        RoFormer: Enhanced Transformer with Rotary Position Embedding

    Computed in float64 and then rounded: float32 angles are off by their own rounding far out.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.width = config.rotary, config.width_turned

    def forward(self, places: Int[Tensor, "#B T"], dtype: torch.dtype) -> Turns:
        """Cosine and sine at these positions."""
        frequencies, factor = rotary_frequencies(self.config, self.width)
        angles = places[:, None, :, None].double() * frequencies.to(places.device)  # [B, 1, T, pairs]
        return Turns.of(angles, dtype, factor)

    def extra_repr(self) -> str:
        """What print(model) shows."""
        return f"{self.width}, base={self.config.base:g}, scaling={self.config.scaling}"


def rotary_frequencies(config: RotaryConfig, width: int) -> tuple[Float[Tensor, " pairs"], float]:
    """Radians a position for each pair, and the factor of cosine and sine (1 but for YaRN).

    linear   all slowed by the factor
                            Extending Context Window of Large Language Models via Positional Interpolation
    ntk      base * factor^(d / (d - 2)): the slowest pair is slowed by the factor, the fastest not at all
    yarn     pairs with many turns inside original_length stay, those with few are slowed, a ramp between
                            YaRN: Efficient Context Window Extension of Large Language Models, section 3.2
    llama3   the same with the ramp over turns: the published code of Llama 3.1
    """
    even = torch.arange(0, width, 2, dtype=torch.float64)  # 2i

    def powers(base: float) -> Tensor:
        return torch.exp(even * (-math.log(base) / width))  # [pairs]

    plain = powers(config.base)
    slow = plain / config.factor
    turns = config.original_length * plain / (2 * math.pi)  # of each pair within the trained length
    match config.scaling:
        case "linear":
            return slow, 1.0
        case "ntk":
            return powers(config.base * config.factor ** (width / max(width - 2, 1))), 1.0
        case "llama3":
            kept = (turns - config.slow_turns) / (config.fast_turns - config.slow_turns)
            return torch.lerp(slow, plain, kept.clamp(0, 1)), 1.0
        case "yarn":
            first, last = (_pair_with(n, config, width) for n in (config.fast_turns, config.slow_turns))
            low, high = max(math.floor(first), 0), min(math.ceil(last), width - 1)
            pair = torch.arange(width // 2, dtype=torch.float64)
            slowed = ((pair - low) / max(high - low, 1e-3)).clamp(0, 1)  # [pairs]
            given = config.attention_factor
            factor = 0.1 * math.log(config.factor) + 1 if given is None else given
            return torch.lerp(plain, slow, slowed), factor
        case _:
            return plain, 1.0


def _pair_with(turns: float, config: RotaryConfig, width: int) -> float:
    """Which pair, as a real number, turns so often within the trained length."""
    return width * math.log(config.original_length / (turns * 2 * math.pi)) / (2 * math.log(config.base))
