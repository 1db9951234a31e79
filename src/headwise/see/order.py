"""How a scheme tells order, as numbers to draw: a vector for each position, or a number for each distance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model.alibi import Alibi
from headwise.model.positions import LearnedPositions, sinusoidal_table
from headwise.model.relative import RelativeBias
from headwise.model.rotary import rotary_frequencies

LENGTH = 64  # positions, where nothing says how many


@dataclass(frozen=True, eq=False)
class Order:
    """A position scheme. One of the two is there:

    table: a row for each position; for rotary the cosine, then the sine, of each pair's angle.
    bias: what each head adds to the score of a key, by distance: key minus query, from -(T - 1) to T - 1.
    """

    name: str
    columns: str = ""
    table: Float[Tensor, "T D"] | None = None
    bias: Float[Tensor, "H distances"] | None = None


def order_of(given: object, length: object = None) -> Order:
    """The scheme that a configuration, a model of ours, nn.Embedding or a table [T, D] stands for.

    length: positions to draw; where it is None, all of a table, else 64.
    Errors: ConfigError where nothing tells order, or there are several tables to choose from.
    """
    if length is not None and (not isinstance(length, int) or length < 2):
        raise ConfigError(f"length must be a whole number of at least 2 positions: got {length!r}")
    if isinstance(given, np.ndarray):
        given = torch.as_tensor(given)
    if isinstance(given, Tensor):
        return _of_table(given, length, "Position table")
    if isinstance(given, ModelConfig):
        return _of_config(given, length or LENGTH)
    if isinstance(given, nn.Embedding):
        return _of_table(given.weight, length, "Position table")
    if not isinstance(given, nn.Module):
        raise ConfigError(
            f"no positions in {type(given).__name__}: give a table [T, D], a model or a ModelConfig"
        )
    held = _held(given)
    config = getattr(given, "config", None)
    if len(held) > 1:
        tables = ", ".join(name for name, _ in held)
        raise ConfigError(f"the model has several position tables, {tables}: give one of these modules")
    if not held and not isinstance(config, ModelConfig):
        raise ConfigError(
            f"no positions found in {type(given).__name__}: give their table [T, D], such as "
            "model.positions.weight"
        )
    if not held:
        return _of_config(cast(ModelConfig, config), length or LENGTH)
    name, module = held[0]
    if isinstance(module, RelativeBias):
        distances = _distances(length or LENGTH)
        bias = module(distances[None], torch.float32)[0, :, 0].detach()  # [H, distances]
        return Order(f"Relative positions{f' of {name}' if name else ''}", bias=bias)
    return _of_table(module.table, length, f"Learned positions{f' of {name}' if name else ''}")


def _held(model: nn.Module) -> list[tuple[str, LearnedPositions | RelativeBias]]:
    modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    return [(name, each) for name, each in modules if isinstance(each, LearnedPositions | RelativeBias)]


def _of_table(table: Tensor, length: int | None, name: str) -> Order:
    if not bool(table.isfinite().all()):
        raise ConfigError(
            "a position table must hold finite numbers: got NaN or infinity; look for their cause"
        )
    if table.dim() != 2 or not table.is_floating_point() or table.size(0) < 2 or not table.size(1):
        raise ConfigError(
            f"a position table must be numbers [T, D] with T >= 2: got {table.dtype} {list(table.shape)}"
        )
    if length is not None and length > table.size(0):
        raise ConfigError(f"the table has {table.size(0)} positions: got length {length}; ask for fewer")
    return Order(name, "dimension", table=table[:length].detach().float().cpu())


def _of_config(config: ModelConfig, length: int) -> Order:
    match config.positions:
        case "sinusoidal":
            table = sinusoidal_table(length, config.d_model)
            return Order(
                "Sinusoidal positions", "dimension: even sin, odd cos; slower to the right", table=table
            )
        case "rotary":
            frequencies, factor = rotary_frequencies(config.rotary, config.width_turned)
            angles = torch.arange(length).double()[:, None] * frequencies  # [T, pairs]
            table = torch.cat((angles.cos(), angles.sin()), dim=-1).float() * factor  # [T, width]
            return Order(
                "Rotary positions", "pair of coordinates: cosines, then sines of the angle", table=table
            )
        case "alibi":
            bias = Alibi(config)(_distances(length)[None], torch.float32)[0, :, 0]  # [H, distances]
            return Order("ALiBi", bias=bias)
        case "none":
            raise ConfigError("positions is none: nothing tells order, and there is nothing to draw")
        case _:
            raise ConfigError(
                f"{config.positions} positions are learned, and a configuration has none: give the model"
            )


def _distances(length: int) -> Tensor:
    return torch.arange(-(length - 1), length)
