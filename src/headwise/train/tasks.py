"""Which task a recipe names."""

from __future__ import annotations

from collections.abc import Callable

from headwise.checkpoint.run import RunFiles
from headwise.config import RunConfig
from headwise.train.task import Task


def make_task(config: RunConfig, files: RunFiles, warn: Callable[[str], None]) -> Task:
    """The data of the run, ready to learn from; what it needs on disk (a tokenizer) is written first.

    Errors: DataError for data that cannot be used; RunError for a damaged tokenizer.
    """
    match config.data.kind:
        case "dates" | "parallel":
            from headwise.train.prepare import prepare
            from headwise.train.translation import Translation

            return Translation(config, prepare(config, files.tokenizer, warn))
        case "text":
            from headwise.data.text import load_text
            from headwise.train.language import LanguageModelling

            data = config.data
            text = load_text(data.text, data.vocab_size, files.tokenizer, files.tokens, warn)
            if config.model.num_encoder_layers:
                from headwise.train.masked import MaskedLanguageModelling

                return MaskedLanguageModelling(config, text)
            return LanguageModelling(config, text)
        case "labelled":
            from headwise.train.labelled import TextClassification

            return TextClassification(config, files, warn)
        case "images":
            from headwise.train.images import ImageClassification

            return ImageClassification(config, files)
