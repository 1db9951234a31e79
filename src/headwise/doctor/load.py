"""From what the user names to a subject: a file, a file:name, a module:name, or the directory of a run.

The file is executed, as `python file.py` would execute it, but not as `__main__`. Its prints go to standard
error, it has a time limit, and what it raises is told in one line.
"""

from __future__ import annotations

import difflib
import importlib.machinery
import importlib.util
import linecache
import os
import re
import sys
import types
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from headwise.doctor.finding import discover
from headwise.doctor.given import check_subject
from headwise.doctor.guard import guarded, running
from headwise.doctor.invent import invent_inputs
from headwise.doctor.made import Making
from headwise.doctor.own_run import read_run
from headwise.doctor.subject import Kind, Layout, Subject
from headwise.doctor.surroundings import (
    OWN_NAME,
    Surroundings,
    forget_neighbours,
    package_of,
    quiet_imports,
    seed_all,
    surroundings,
)
from headwise.errors import DataError

_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class Loaded:
    """A subject ready to be examined, with the record of its making; examine it inside `running()`.

    assumed: what was taken for granted to get it, by name; notes: what else the user should know.
    """

    subject: Subject
    making: Making
    assumed: dict[str, object]
    notes: tuple[str, ...]
    surroundings: Surroundings

    @contextmanager
    def running(self) -> Generator[None]:
        """The surroundings in which the user's code was loaded; its prints go to standard error.

        Errors: DataError where it calls sys.exit.
        """
        with running(self.subject.name), self.surroundings.entered():
            yield


def load(
    target: str,
    *,
    kind: Kind | None = None,
    pad_id: int | None = None,
    layout: Layout | None = None,
    seconds: float | None = 60.0,
) -> Loaded:
    """Load what `target` names; kind, pad_id and layout stand above what the subject says of itself.

    Errors: DataError that says what failed, with the user's line, or asks for what is missing; RunError for
    a directory that is no run.
    """
    making = Making()
    if os.path.isdir(target):
        made = read_run(Path(target))
        subject, assumed, notes, around = made.subject, made.assumed, made.notes, surroundings()
    else:
        name, origin = _split(target)
        around = surroundings(origin)
        shown = f"{target.removesuffix(f':{name}')}" if name else target
        with guarded(f"{shown} cannot be loaded", seconds), around.entered(), quiet_imports():
            seed_all()
            with making:
                module = _execute(origin) if isinstance(origin, Path) else _import(origin)
                found = discover(module, name, shown)
                subject, assumed, notes = found.subject, dict(found.assumed), found.notes
                check_subject(subject, shown)
                layout = layout or subject.layout
                if subject.inputs is None:
                    inputs, guessed = invent_inputs(_module(subject, shown), layout, shown)
                    subject, assumed = replace(subject, inputs=inputs), assumed | guessed
    if making.is_full:
        notes = (*notes, "so many operations ran while it was made that later ones lead to no line")
    padding = assumed.pop("pad_id", None)
    if isinstance(padding, int) and subject.pad_id is None and pad_id is None:
        subject = replace(subject, pad_id=padding)
        assumed["pad_id_from"] = "padding_idx of its embedding"
    subject = replace(
        subject,
        kind=kind or subject.kind,
        pad_id=subject.pad_id if pad_id is None else pad_id,
        layout=layout or subject.layout,
        name=subject.name or target,
    )
    return Loaded(subject, making, assumed, notes, around)


def _module(subject: Subject, shown: str) -> torch.nn.Module:
    if isinstance(subject.model, torch.nn.Module):
        return subject.model
    raise DataError(f"{shown}: inputs can be made up only for an nn.Module; add 'inputs' to the subject")


def _split(target: str) -> tuple[str | None, Path | str]:
    """The name asked for, and the file or module that is to define it.

    Errors: DataError for what is neither.
    """
    left, colon, name = target.rpartition(":")
    if colon and not os.path.exists(target) and _DOTTED.fullmatch(name):
        target = left
    else:
        name = ""
    path = Path(target)
    if path.is_file():
        _check_file(path)
        return name or None, path
    if not (path.suffix == ".py" or os.sep in target) and _DOTTED.fullmatch(target):
        return name or None, target
    folder = path.parent
    beside = [p.name for p in folder.glob("*.py")] if folder.is_dir() else []
    close = difflib.get_close_matches(path.name, beside, n=1)
    hint = (
        f"did you mean {folder / close[0]}?"
        if close
        else "name a file such as my_model.py or my_model.py:build"
    )
    raise DataError(f"no file {target}; {hint}")


def _check_file(path: Path) -> None:
    if path.suffix == ".ipynb":
        raise DataError(f"{path} is a notebook: call headwise.examine(model, inputs) in one of its cells")
    if path.suffix in _PICKLES or path.suffix == ".safetensors":
        raise DataError(
            f"{path} holds weights, not a model: name the Python file that builds the model, or call "
            "headwise.examine(model, inputs)"
        )


def _execute(path: Path) -> types.ModuleType:
    """The module that a file makes, under a name of its own: a file random.py does not hide Python's."""
    parts = package_of(path)
    if len(parts) > 1:
        return _import(".".join(parts))
    file = os.path.abspath(path)
    name = f"{OWN_NAME}{zlib.crc32(os.fsencode(file)):08x}"
    forget_neighbours(Path(file).parent)
    linecache.checkcache(file)
    spec = importlib.util.spec_from_loader(name, importlib.machinery.SourceFileLoader(name, file))
    assert spec is not None, "a loader gives a spec"
    module = importlib.util.module_from_spec(spec)
    code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
    sys.modules[name] = module  # dataclasses and inspect look there, also afterwards
    exec(code, vars(module))
    return module


def _import(name: str) -> types.ModuleType:
    __import__(name)
    return sys.modules[name]
