"""The model that a recipe describes, once its data have told the vocabulary and the classes."""

from __future__ import annotations

from dataclasses import replace

from headwise.config import RunConfig
from headwise.data.text_tokenizer import TextTokenizer
from headwise.data.tokenizer import Tokenizer
from headwise.errors import ConfigError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.language_model import LanguageModel
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier
from headwise.model.vision import ImageClassifier

Trainable = EncoderDecoder | LanguageModel | MaskedLanguageModel | TextClassifier | ImageClassifier


def build_model(
    config: RunConfig, tokenizer: Tokenizer | TextTokenizer | None = None, classes: tuple[str, ...] = ()
) -> Trainable:
    """A model as it starts: draws from torch's random state.

    Errors: ConfigError where the configuration and the data do not fit together.
    """
    model = config.model
    if tokenizer is not None:
        # a window of a text that is continued holds no padding, whatever the vocabulary has
        is_continued = config.data.kind == "text" and model.num_encoder_layers == 0
        model = model.with_vocabulary(tokenizer.vocab_size, None if is_continued else tokenizer.pad_id)
    if classes:
        if model.num_classes not in (None, len(classes)):
            raise ConfigError(
                f"model.num_classes must equal that of the data: got {model.num_classes}, the data have "
                f"{len(classes)}; leave model.num_classes out"
            )
        model = replace(model, num_classes=len(classes))
    match config.data.kind:
        case "text":
            return MaskedLanguageModel(model) if model.num_encoder_layers else LanguageModel(model)
        case "labelled":
            return TextClassifier(model)
        case "images":
            return ImageClassifier(model)
        case _:
            return EncoderDecoder(model)
