"""What a stranger's code finds about it: Python's search path and arguments, torch's defaults, seeds."""

# pyright: reportUnknownMemberType=false
# torch leaves the setters of its defaults without a type
from __future__ import annotations

import ast
import os
import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

OWN_NAME = "headwise_subject_"  # begins the module names of files that were executed


@dataclass
class Surroundings:
    """Kept from loading to running, where the user's code goes on."""

    path: list[str]
    argv: list[str]
    dtype: torch.dtype
    device: torch.device

    @contextmanager
    def entered(self) -> Generator[None]:
        """Put them in place; what was there before comes back, and theirs is remembered."""
        before = surroundings()
        self._install()
        try:
            yield
        finally:
            now = surroundings()
            self.path, self.dtype, self.device = now.path, now.dtype, now.device
            before._install()

    def _install(self) -> None:
        sys.path[:], sys.argv = self.path, self.argv
        torch.set_default_dtype(self.dtype)
        if torch.get_default_device() != self.device:
            torch.set_default_device(self.device)


def surroundings(origin: Path | str | None = None) -> Surroundings:
    """Those of now; for a file or a module, with the folder that Python would search first."""
    path = list(sys.path)
    argv = list(sys.argv)
    if isinstance(origin, Path):
        path.insert(0, str(_search_folder(origin)))
        argv = [str(origin)]
    elif origin is not None:
        path.insert(0, os.getcwd())
        argv = [origin]
    return Surroundings(path, argv, torch.get_default_dtype(), torch.get_default_device())


def _search_folder(path: Path) -> Path:
    folder = path.absolute().parent
    for _ in package_of(path)[:-1]:
        folder = folder.parent
    return folder


def package_of(path: Path) -> list[str]:
    """['package', 'module'] of a file that imports from the package it lies in, else ['module']."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return [path.stem]
    if not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
        return [path.stem]
    parts, folder = [path.stem], path.absolute().parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return parts


_neighbours: dict[str, Path] = {}


def forget_neighbours(folder: Path) -> None:
    """Forget what files of another folder imported from beside them: it may have a helpers.py too."""
    for name, held in list(_neighbours.items()):
        if held != folder:
            sys.modules.pop(name, None)
            del _neighbours[name]


@contextmanager
def quiet_imports() -> Generator[None]:
    """Write no __pycache__ beside the user's files, and remember which modules came from there."""
    before, writes = set(sys.modules), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    folder = sys.path[0]
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if Path(file).parent == Path(folder) and not name.startswith(OWN_NAME):
                _neighbours[name] = Path(folder)


def seed_all() -> None:
    """The same model and batch in every process, also where the author set no seed."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
