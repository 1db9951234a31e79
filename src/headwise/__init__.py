"""Headwise: a Transformer that reads like the paper and really works.

Every public name, each fetched from its module when it is first asked for (PEP 562), so that
`import headwise` and the command line's --help cost nothing: torch is loaded with the first model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.config import (
        DataConfig,
        DatesConfig,
        ModelConfig,
        ParallelConfig,
        RunConfig,
        TrainConfig,
    )
    from headwise.data.tokenizer import Tokenizer
    from headwise.errors import (
        ConfigError,
        DataError,
        HeadwiseError,
        MissingExtra,
        RunError,
        StorageError,
        TrainingError,
    )
    from headwise.model.attention import MultiHeadAttention, attend
    from headwise.model.encoder_decoder import EncoderDecoder

    __version__: str

__all__ = [
    "ConfigError",
    "DataConfig",
    "DataError",
    "DatesConfig",
    "EncoderDecoder",
    "HeadwiseError",
    "MissingExtra",
    "ModelConfig",
    "MultiHeadAttention",
    "ParallelConfig",
    "RunConfig",
    "RunError",
    "StorageError",
    "Tokenizer",
    "TrainConfig",
    "TrainingError",
    "__version__",
    "attend",
]

_MODULES = {
    "config": ("DataConfig", "DatesConfig", "ModelConfig", "ParallelConfig", "RunConfig", "TrainConfig"),
    "data.tokenizer": ("Tokenizer",),
    "errors": (
        "ConfigError",
        "DataError",
        "HeadwiseError",
        "MissingExtra",
        "RunError",
        "StorageError",
        "TrainingError",
    ),
    "model.attention": ("MultiHeadAttention", "attend"),
    "model.encoder_decoder": ("EncoderDecoder",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """The public name from its own module; asked once, then an ordinary attribute."""
    if name == "__version__":
        value = _version()
    elif name in _HOME:
        value = getattr(import_module(f"headwise.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'headwise' has no attribute {name!r}; it has {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    # importlib.metadata alone costs a tenth of what --help may take
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("headwise")
    except PackageNotFoundError:
        return "0+uninstalled"  # the sources run from PYTHONPATH
