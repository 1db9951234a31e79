"""Tensors in and out of safetensors files: named, checked, never unpickled."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from headwise.errors import RunError
from headwise.files import write_atomically


def save_tensors(path: Path, tensors: dict[str, Tensor], about: dict[str, object]) -> None:
    """Write tensors and a JSON-able description into one file, atomically.

    One file, so that a crash cannot leave tensors of one moment beside a description of another.
    """
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    metadata = {"headwise": json.dumps(about)}
    write_atomically(path, lambda beside: save_file(contiguous, beside, metadata))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `save_tensors` wrote.

    Errors: RunError naming the file when it is missing, damaged, or not of headwise.
    """
    try:
        # straight into memory of our own: a mapped file that is replaced later must not change under us
        with safe_open(path, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]
            metadata: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"{path} is missing: expected a file that headwise train wrote") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {error}; restore it or train again") from None
    if "headwise" not in metadata:
        raise RunError(f"{path} was not written by headwise (its header has no 'headwise' entry); it is left alone")
    try:
        about = json.loads(metadata["headwise"])
    except ValueError:
        raise RunError(f"{path} has a damaged header: 'headwise' is not JSON; restore it or train again") from None
    if not isinstance(about, dict):
        raise RunError(f"{path} has a damaged header: expected an object; restore it or train again")
    return tensors, about  # pyright: ignore[reportUnknownVariableType]


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter once: tied ones under their first name."""
    return dict(model.named_parameters())


@torch.no_grad()
def fill_model(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into the model's parameters.

    Errors: RunError listing every missing, unexpected and misshapen tensor; nothing is filled half.
    """
    wanted = model_tensors(model)
    problems = [f"{name}: missing" for name in wanted if name not in tensors]
    problems += [f"{name}: unexpected" for name in tensors if name not in wanted]
    problems += [
        f"{name}: file {list(tensors[name].shape)}, model {list(wanted[name].shape)}"
        for name in wanted
        if name in tensors and tensors[name].shape != wanted[name].shape
    ]
    if problems:
        raise RunError(f"{path} does not fit the model: {'; '.join(problems)}")
    for name, parameter in wanted.items():
        parameter.copy_(tensors[name])
