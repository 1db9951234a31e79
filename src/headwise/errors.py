"""Every error that headwise raises on purpose.

HeadwiseError
|-- ConfigError     a setting, or a combination of settings, that cannot work       (also ValueError)
|-- DataError       text that cannot be read or used                                (also ValueError)
|-- RunError        a run directory that is damaged, foreign, or another run's      (also ValueError)
|-- TrainingError   training that cannot go on (a loss that is not finite)          (also RuntimeError)
|-- StorageError    a file that cannot be written (disk full, no permission)        (also OSError)
|-- Stopped         the user pressed Ctrl-C; all is saved and the message says how to go on
`-- MissingExtra    an optional package that is not installed                       (also ImportError)

A message says what was expected, what came, and the way out. The command line prints it as one
line and exits with 2 (with 130 for Stopped); nothing here is ever shown with a traceback there.
"""

from __future__ import annotations


class HeadwiseError(Exception):
    """The base of all errors that headwise raises on purpose."""


class ConfigError(HeadwiseError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class DataError(HeadwiseError, ValueError):
    """Text that cannot be read or used."""


class RunError(HeadwiseError, ValueError):
    """A run directory that is damaged, foreign, or holds another configuration's run."""


class TrainingError(HeadwiseError, RuntimeError):
    """Training that cannot go on."""


class StorageError(HeadwiseError, OSError):
    """A file that cannot be written."""


class MissingExtra(HeadwiseError, ImportError):
    """An optional package that is not installed."""

    def __init__(self, package: str, purpose: str, extra: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed: pip install 'headwise[{extra}]'"
        )


class Stopped(HeadwiseError):
    """The user asked to stop; everything is saved. The message says how to go on."""
