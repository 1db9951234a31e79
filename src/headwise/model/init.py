"""Every starting distribution, in one table."""

from __future__ import annotations

import math
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.attention import MultiHeadAttention
from headwise.model.embed import InputEmbedding, PatchEmbedding, TokenEmbedding
from headwise.model.feedforward import FeedForward, GatedFeedForward
from headwise.model.norm import LayerNorm, RMSNorm
from headwise.model.positions import LearnedPositions
from headwise.model.relative import RelativeBias

# what                         starts as                                       why
# W_Q, W_K, W_V                Xavier-uniform, each by its own fan             scores of variance 1 or less
#   W_Q of unscaled attention  the same, gain 1 / sqrt(d_head), as in T5       takes the scale's place
# W_O                          Xavier-uniform, gain 1 or 1 / sqrt(num_heads)   config.output_gain
# feed-forward matrices        Xavier-uniform, the two of a gated layer each by its own fan
# embeddings (and tied output) normal, std 1 / sqrt(d_model)                   times sqrt(d_model): std 1
#   where they are not scaled  normal, std 1
#   nor is the tied output     normal, std 1 / sqrt(d_model)                   logits of variance 1
# untied output                Xavier-uniform
# learned positions, class     normal, std 0.02                                small beside the embeddings
#   token, relative bias
# segments                     normal, std 0.02                                the same
# other matrices               Xavier-uniform                                  patches, heads of classifiers
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
    products = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        matrices: list[Tensor] = []
        match module:
            case MultiHeadAttention():
                # the fused matrix has a fan-out of all three, each of its parts only its own
                queries, *others = torch.split(module.query_key_value.weight, list(module.widths))
                _xavier(queries, 1.0 if config.scale_attention else module.d_head**-0.5)
                for block in others:
                    _xavier(block)
                gain = 1 / math.sqrt(config.num_heads) if config.output_gain == "inverse-sqrt-heads" else 1.0
                _xavier(module.output.weight, gain)
                linears = [module.query_key_value, module.output]
            case FeedForward():
                matrices, linears = [module.wide.weight, module.narrow.weight], [module.wide, module.narrow]
            case GatedFeedForward():
                matrices = [*module.wide.weight.chunk(2), module.narrow.weight]
                linears = [module.wide, module.narrow]
            case nn.Linear() if id(module.weight) not in known:  # not drawn with the part that holds it
                matrices, linears = [module.weight], [module]
            case nn.Linear():
                linears = [module]  # a tied output has its bias alone to start
            case TokenEmbedding():
                makes_logits = id(module.table.weight) in products and not config.scale_output
                std = config.d_model**-0.5 if config.scale_embedding or makes_logits else 1.0
                nn.init.normal_(module.table.weight, std=std)
                own, linears = {"weight": module.table.weight}, []
            case InputEmbedding() if module.segments is not None:
                nn.init.normal_(module.segments.weight, std=0.02)
                own, linears = {"weight": module.segments.weight}, []
            case LearnedPositions() | RelativeBias():
                nn.init.normal_(module.table, std=0.02)
                linears = []
            case PatchEmbedding() if module.class_token is not None:
                nn.init.normal_(module.class_token, std=0.02)
                linears = []
            case LayerNorm() | RMSNorm():
                nn.init.ones_(module.gain)
                if isinstance(module, LayerNorm):
                    nn.init.zeros_(module.bias)
                linears = []
            case _:
                continue
        for matrix in matrices:
            _xavier(matrix)
        for linear in linears:
            own |= {f"{id(linear)}.{name}": p for name, p in linear.named_parameters()}
            if cast("Tensor | None", linear.bias) is not None:
                nn.init.zeros_(linear.bias)
        known.update(id(parameter) for parameter in own.values())
    forgotten = [name for name, parameter in model.named_parameters() if id(parameter) not in known]
    assert not forgotten, f"no starting distribution for {', '.join(forgotten)}"


def _xavier(weight: Float[Tensor, "fan_out fan_in"], gain: float = 1.0) -> None:
    bound = xavier_bound(weight.size(1), weight.size(0), gain)
    nn.init.uniform_(weight, -bound, bound)
