"""Is a device there? Asked before a model is moved to it, so that the answer is one line."""

from __future__ import annotations

import torch

from headwise.errors import ConfigError


def check_device(name: str, option: str = "device") -> None:
    """Refuse a device that is not there, or that holds no numbers (meta).

    Errors: ConfigError that names it and what is there.
    """
    why = ""
    try:
        if torch.device(name).type == "meta":
            why = "meta holds shapes and no numbers"
        else:
            torch.zeros(1, device=name).add_(1).tolist()  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:  # each backend that is not built or has no device raises a type of its own
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
    if why:
        raise ConfigError(f"{option} must be one that is there, {' or '.join(_there())}: got {name} ({why})")


def _there() -> list[str]:
    there = ["cpu"]
    if torch.cuda.is_available():
        there += [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        there.append("mps")
    return there
