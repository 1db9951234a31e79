"""What can be no run, told before anything heavy is loaded."""

from __future__ import annotations

from pathlib import Path

from headwise.errors import RunError


def check_run_folder(folder: Path) -> None:
    """Refuse what cannot be a run: nothing there, a file, a directory without config.yaml.

    Errors: RunError.
    """
    try:
        if not folder.exists():
            raise RunError(f"no run {folder}; headwise train RECIPE makes one")
        if not folder.is_dir():
            raise RunError(f"{folder} is a file: expected a run, the directory that headwise train made")
        if not (folder / "config.yaml").exists():
            raise RunError(f"{folder} is not a run: it has no config.yaml; headwise train RECIPE makes one")
    except OSError as error:  # a name too long, a directory that may not be entered
        raise RunError(
            f"cannot read {folder}: {error.strerror}; name a run that headwise train made"
        ) from None
