"""Checkpoints by name from the Hugging Face hub, where huggingface_hub is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headwise.checkpoint.foreign.files import CONFIG, GENERATION, INDEX, ONE_FILE, TOKENIZER
from headwise.errors import MissingExtra, RunError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
# of the whole repository only what `load` reads: no pickles, no other frameworks' weights
_WANTED = [CONFIG, GENERATION, ONE_FILE, INDEX, "model-*-of-*.safetensors", TOKENIZER]


def is_hub_name(name: str) -> bool:
    """Whether it could be a name there: gpt2, org/name."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def download(name: str) -> Path:
    """The directory with the checkpoint's files, fetched unless they are there already.

    Errors: MissingExtra without huggingface_hub; RunError in one line where the hub cannot be reached, does
    not know the name, or does not let us in.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtra(
            "huggingface_hub", f"{name} is no directory here, and its download", "hub"
        ) from None
    try:
        hub: Any = huggingface_hub
        return Path(hub.snapshot_download(name, allow_patterns=_WANTED))
    except Exception as error:  # of the library, of the network beneath it, of the disk
        reason = " ".join(str(error).split())
        reason = reason if len(reason) <= 200 else f"{reason[:197]}..."
        raise RunError(
            f"{name} is no directory here and could not be fetched from the hub: {type(error).__name__}: "
            f"{reason}; check the name and the network, or give a directory"
        ) from None
