"""Headwise: a Transformer that reads like the paper and really works.

Every public name, each fetched from its module when it is first asked for (PEP 562), so that
`import headwise` and the command line's --help cost nothing: torch is loaded with the first model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwise.checkpoint.foreign.load import Pretrained, load
    from headwise.checkpoint.foreign.save import save
    from headwise.checkpoint.run import Run, load_run
    from headwise.config import (
        DataConfig,
        DatesConfig,
        ImagesConfig,
        LabelledConfig,
        ModelConfig,
        ParallelConfig,
        PatchConfig,
        RotaryConfig,
        RunConfig,
        TextConfig,
        TrainConfig,
    )
    from headwise.data.tokenizer import Tokenizer
    from headwise.decode.beam import Hypothesis, beam_search
    from headwise.decode.greedy import greedy
    from headwise.decode.sample import generate
    from headwise.decode.sampling import Sampling
    from headwise.decode.translate import Translation, Translator
    from headwise.decode.writer import Writer
    from headwise.doctor.check import Finding
    from headwise.doctor.examine import examine
    from headwise.doctor.report import Report
    from headwise.doctor.subject import Subject
    from headwise.errors import (
        ConfigError,
        DataError,
        HeadwiseError,
        MissingExtra,
        RunError,
        Stopped,
        StorageError,
        TrainingError,
    )
    from headwise.evaluate.score import Scores, score
    from headwise.model.attention import MultiHeadAttention, attend
    from headwise.model.encoder_decoder import AttentionMaps, EncoderDecoder
    from headwise.model.language_model import LanguageModel
    from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder
    from headwise.model.vision import ImageClassifier
    from headwise.see import draw
    from headwise.see.attention import Attention, attention
    from headwise.see.drawing import Drawing
    from headwise.see.walk.walk import Walk, trace
    from headwise.see.watch.watch import watch
    from headwise.see.watch.watcher import Watch

    __version__: str

__all__ = [
    "Attention",
    "AttentionMaps",
    "ConfigError",
    "DataConfig",
    "DataError",
    "DatesConfig",
    "Drawing",
    "EncoderDecoder",
    "Finding",
    "HeadwiseError",
    "Hypothesis",
    "ImageClassifier",
    "ImagesConfig",
    "LabelledConfig",
    "LanguageModel",
    "MaskedLanguageModel",
    "MissingExtra",
    "ModelConfig",
    "MultiHeadAttention",
    "ParallelConfig",
    "PatchConfig",
    "Pretrained",
    "Report",
    "RotaryConfig",
    "Run",
    "RunConfig",
    "RunError",
    "Sampling",
    "Scores",
    "Stopped",
    "StorageError",
    "Subject",
    "TextClassifier",
    "TextConfig",
    "TextEncoder",
    "Tokenizer",
    "TrainConfig",
    "TrainingError",
    "Translation",
    "Translator",
    "Walk",
    "Watch",
    "Writer",
    "__version__",
    "attend",
    "attention",
    "beam_search",
    "draw",
    "examine",
    "generate",
    "greedy",
    "load",
    "load_run",
    "save",
    "score",
    "trace",
    "watch",
]

_MODULES = {
    "checkpoint.foreign.load": ("Pretrained", "load"),
    "checkpoint.foreign.save": ("save",),
    "checkpoint.run": ("Run", "load_run"),
    "config": (
        "DataConfig",
        "DatesConfig",
        "ImagesConfig",
        "LabelledConfig",
        "ModelConfig",
        "ParallelConfig",
        "PatchConfig",
        "RotaryConfig",
        "RunConfig",
        "TextConfig",
        "TrainConfig",
    ),
    "data.tokenizer": ("Tokenizer",),
    "decode.beam": ("Hypothesis", "beam_search"),
    "decode.greedy": ("greedy",),
    "decode.sample": ("generate",),
    "decode.sampling": ("Sampling",),
    "decode.translate": ("Translation", "Translator"),
    "decode.writer": ("Writer",),
    "doctor.check": ("Finding",),
    "doctor.examine": ("examine",),
    "doctor.report": ("Report",),
    "doctor.subject": ("Subject",),
    "errors": (
        "ConfigError",
        "DataError",
        "HeadwiseError",
        "MissingExtra",
        "RunError",
        "Stopped",
        "StorageError",
        "TrainingError",
    ),
    "evaluate.score": ("Scores", "score"),
    "model.attention": ("MultiHeadAttention", "attend"),
    "model.encoder_decoder": ("AttentionMaps", "EncoderDecoder"),
    "model.language_model": ("LanguageModel",),
    "model.text_encoder": ("MaskedLanguageModel", "TextClassifier", "TextEncoder"),
    "model.vision": ("ImageClassifier",),
    "see": ("draw",),
    "see.attention": ("Attention", "attention"),
    "see.drawing": ("Drawing",),
    "see.walk.walk": ("Walk", "trace"),
    "see.watch.watch": ("watch",),
    "see.watch.watcher": ("Watch",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """The public name from its own module; asked once, then an ordinary attribute."""
    if name == "__version__":
        value = _version()
    elif name in _HOME:
        home = f"headwise.{_HOME[name]}"
        if name == "draw":  # a module of its own
            import_module(f"{home}.{name}")
        value = getattr(import_module(home), name)
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
