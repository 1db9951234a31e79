"""Every starting distribution, in one table."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.attention import MultiHeadAttention
from headwise.model.embed import TokenEmbedding
from headwise.model.feedforward import FeedForward
from headwise.model.norm import LayerNorm
from headwise.model.positions import LearnedPositions

# what                         starts as                                       why
# W_Q, W_K, W_V                Xavier-uniform, each by its own fan             scores of variance 1 or less
# W_O                          Xavier-uniform, gain 1 or 1 / sqrt(num_heads)   config.output_gain
# feed-forward matrices        Xavier-uniform
# embeddings (and tied output) normal, std 1 / sqrt(d_model)                   times sqrt(d_model): std 1
#   where they are not scaled  normal, std 1
# untied output                Xavier-uniform
# learned positions            normal, std 0.02                                small beside the embeddings
# norms                        gain 1, bias 0
# every bias                   0


def xavier_bound(fan_in: int, fan_out: int, gain: float = 1.0) -> float:
    """Half the width of the uniform distribution: gain * sqrt(6 / (fan_in + fan_out)).

    Understanding the difficulty of training deep feedforward neural networks, eq. 16
    """
    return gain * math.sqrt(6 / (fan_in + fan_out))


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Give every parameter of the model its starting distribution from the table above.

    Errors: a parameter that the table does not know is a mistake of ours (assert), so that a new
    part cannot start from whatever its constructor left.
    """
    known: set[int] = set()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            # the fused matrix has a fan-out of 3 * d_model, each of its three parts only d_model
            for block in module.query_key_value.weight.chunk(3):
                _xavier(block)
            gain = 1 / math.sqrt(config.num_heads) if config.output_gain == "inverse-sqrt-heads" else 1.0
            _xavier(module.output.weight, gain)
            linears = [module.query_key_value, module.output]
        elif isinstance(module, FeedForward):
            linears = [module.wide, module.narrow]
            for linear in linears:
                _xavier(linear.weight)
        elif isinstance(module, TokenEmbedding):
            std = config.d_model**-0.5 if config.scale_embedding else 1.0
            nn.init.normal_(module.table.weight, std=std)
            known.add(id(module.table.weight))
            continue
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.table, std=0.02)
            known.add(id(module.table))
            continue
        elif isinstance(module, LayerNorm):
            nn.init.ones_(module.gain)
            nn.init.zeros_(module.bias)
            known.update((id(module.gain), id(module.bias)))
            continue
        elif isinstance(module, nn.Linear) and id(module.weight) not in known:
            _xavier(module.weight)  # the untied output; the linears of the parts above are drawn with them
            linears = [module]
        else:
            continue
        for linear in linears:
            known.update(id(parameter) for parameter in linear.parameters())
            for name, parameter in linear.named_parameters():
                if name == "bias":
                    nn.init.zeros_(parameter)
    forgotten = [name for name, parameter in model.named_parameters() if id(parameter) not in known]
    assert not forgotten, f"no starting distribution for {', '.join(forgotten)}"


def _xavier(weight: Float[Tensor, "fan_out fan_in"], gain: float = 1.0) -> None:
    bound = xavier_bound(weight.size(1), weight.size(0), gain)
    nn.init.uniform_(weight, -bound, bound)
