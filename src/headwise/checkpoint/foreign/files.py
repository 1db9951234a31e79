"""The files of a foreign checkpoint, read without trusting them: no pickle, no path out of the directory."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePath
from typing import Any, cast

from torch import Tensor

from headwise.checkpoint.weights import read_tensors
from headwise.errors import RunError

CONFIG, GENERATION = "config.json", "generation_config.json"
ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
REMEDY = "download or copy it again"
_LONGEST = 200  # letters of a name; those of tensors have some 80
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


def is_there(path: Path) -> bool:
    """Whether a file stands there.

    Errors: RunError where something else does: a directory, a pipe, a link that leads nowhere.
    """
    if os.path.isfile(path):
        return True
    if os.path.lexists(path):
        raise RunError(f"{path} is no file: expected one, or a link to one; {REMEDY}")
    return False


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object.

    Errors: RunError naming the file when it is missing, damaged, or something else.
    """
    if not is_there(path):
        raise RunError(f"{path} is missing: expected a checkpoint's {path.name}; {REMEDY}")
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}; {REMEDY}") from None
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: expected JSON, got {error}; {REMEDY}") from None
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged: expected an object, got {type(content).__name__}; {REMEDY}")
    return cast("dict[str, Any]", content)


def told(name: str) -> str:
    """A name out of a file for a message: as it is, unless it would break the line or fill the screen."""
    if name.isprintable() and 0 < len(name) <= _LONGEST:
        return name
    return repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}...")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the directory's safetensors, from one file or from several with an index.

    Errors: RunError naming the file that is missing or damaged, and for weights that are pickled.
    """
    if is_there(folder / ONE_FILE):
        return read_tensors(folder / ONE_FILE, REMEDY)[0]
    if is_there(folder / INDEX):
        return _sharded(folder)
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1 and is_there(found[0]):
        return read_tensors(found[0], REMEDY)[0]
    pickled = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickled and not found:
        raise RunError(
            f"{folder} has its weights in {told(pickled[0])}, and reading a pickle runs what its author "
            "wrote: expected model.safetensors; convert it where you trust it: "
            "AutoModel.from_pretrained(...).save_pretrained(..., safe_serialization=True)"
        )
    names = ", ".join(told(path.name) for path in found) or "no *.safetensors"
    raise RunError(f"{folder} holds {names}: expected {ONE_FILE}, or parts with {INDEX}; {REMEDY}")


def _sharded(folder: Path) -> dict[str, Tensor]:
    index = folder / INDEX
    homes = read_object(index).get("weight_map")
    if not isinstance(homes, dict) or not all(
        isinstance(part, str) for part in cast("dict[str, object]", homes).values()
    ):
        raise RunError(f"{index} is damaged: expected weight_map, the file of each tensor; {REMEDY}")
    homes = cast("dict[str, str]", homes)
    parts = sorted(set(homes.values()))
    strange = [part for part in parts if PurePath(part).name != part or "\\" in part or part in ("", "..")]
    if strange:
        raise RunError(
            f"{index} names files outside its directory: {', '.join(map(told, strange))}; {REMEDY}"
        )
    missing = [part for part in parts if not os.path.isfile(folder / part)]
    if missing:
        raise RunError(f"{index} names files that are missing: {', '.join(map(told, missing))}; {REMEDY}")
    tensors: dict[str, Tensor] = {}
    for part in parts:
        found = read_tensors(folder / part, REMEDY)[0]
        twice = sorted(tensors.keys() & found.keys())
        if twice:
            raise RunError(
                f"{folder / part} holds tensors of another part: {', '.join(map(told, twice))}; {REMEDY}"
            )
        tensors |= found
    absent = sorted(name for name in homes if name not in tensors)
    if absent:
        raise RunError(f"{index} names tensors that no part holds: {', '.join(map(told, absent))}; {REMEDY}")
    return tensors
