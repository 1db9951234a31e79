"""What a trained run, or a public checkpoint, looks at in one text or one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.checkpoint.foreign.load import Pretrained
from headwise.checkpoint.run import ImageRun, Run, TextRun
from headwise.data.images import load_pictures, read_picture
from headwise.data.text_tokenizer import TextTokenizer
from headwise.decode.classify import text_ids
from headwise.decode.rules import evaluating
from headwise.doctor.subject import Kind, Subject
from headwise.errors import ConfigError, DataError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.language_model import LanguageModel
from headwise.model.text_encoder import TextClassifier
from headwise.model.vision import ImageClassifier
from headwise.see.attention import attention_of
from headwise.see.reading import Reading, check_length, read_pair, read_sentence


def read_run(run: Run | TextRun | ImageRun, source: str, target: str | None = None) -> Reading:
    """Let a run's model read a text, or a picture, and keep what each head looked at.

    source: the text; for a run of pictures a file, or the number of a picture of its test part.
    target: the translation to write instead of the model's own.
    Errors: DataError for what cannot be read; ConfigError for a target where nothing is translated.
    """
    if isinstance(run, Run):
        return read_sentence(run.model, run.tokenizer, source, target)
    _refuse_target(target)
    if isinstance(run, ImageRun):
        image = _picture(run, source)
        named = f"picture {source}" if source.isdigit() else Path(source).name
        return _read(run.model, image, None, "encoder", f"Attention while naming {named}", run.classes)
    if isinstance(run.model, TextClassifier):
        rows, _ = text_ids(run.tokenizer, [source], run.config.data.labelled.max_length)
        ids = rows[0]
    else:
        ids = run.tokenizer.encode([source])[0]
    return _read_text(run.model, run.tokenizer, ids, source, run.classes)


def read_checkpoint(found: Pretrained, source: str, target: str | None = None) -> Reading:
    """The same of a public checkpoint, with its own tokenizer.

    Errors: ConfigError for one without a tokenizer, of pictures, or of an encoder-decoder that does not say
    how answers begin.
    """
    model, tokenizer = found.model, found.tokenizer
    if isinstance(model, ImageClassifier):
        raise ConfigError(
            "a public checkpoint of pictures does not say how they are prepared: call "
            "headwise.attention(model, pixel_values) with pictures prepared as it was trained"
        )
    if tokenizer is None:
        raise ConfigError(
            "the checkpoint has no tokenizer.json: add it, or call headwise.attention(model, ids) with ids"
        )
    ids = tokenizer.encode([source], framed=True)[0]
    if not isinstance(model, EncoderDecoder):
        _refuse_target(target)
        return _read_text(model, tokenizer, ids, source, found.classes)
    check_length("the text", len(ids), model.config.max_length)
    given = None if target is None else tokenizer.encode([target])[0]
    title = f"Attention while {'answering' if given is None else 'writing the given answer to'} {source}"
    written, attention = read_pair(model, ids, found.marks, tokenizer.names, title, given)
    return Reading(tokenizer.decode([written])[0], attention)


def _refuse_target(target: str | None) -> None:
    if target is not None:
        raise ConfigError("a target is what an encoder-decoder writes: this model writes none; leave it out")


def _read_text(
    model: Any, tokenizer: TextTokenizer, ids: Sequence[int], text: str, classes: Sequence[str]
) -> Reading:
    check_length("the text", len(ids), model.config.max_length)
    kind: Kind = "decoder" if isinstance(model, LanguageModel) else "encoder"
    title = f"Attention while reading {text}"
    return _read(model, torch.tensor([list(ids)]), tokenizer.names(ids), kind, title, classes)


def _read(
    model: Any, given: Tensor, names: Sequence[str] | None, kind: Kind, title: str, classes: Sequence[str]
) -> Reading:
    given = given.to(next(model.parameters()).device)
    found = attention_of(Subject(model, (given,), kind=kind, layout="batch-first"), tokens=names, title=title)
    return Reading(_named(model, given, classes) if classes else None, found)


def _named(model: Any, given: Tensor, classes: Sequence[str]) -> str:
    with evaluating(model):
        chances = model(given)[0].float().softmax(-1)
    place = int(chances.argmax())
    return f"{' '.join(classes[place].split())}\t{float(chances[place]):.4f}"


def _picture(run: ImageRun, source: str) -> Tensor:
    """A picture as the model takes it, alone in a batch."""
    patches = run.config.model.patches
    if not source.isdigit() or Path(source).exists():
        return torch.as_tensor(read_picture(Path(source), patches))[None]
    test = load_pictures(run.config.data.images, patches).test
    if int(source) >= len(test):
        raise DataError(
            f"the test part has the pictures 0 to {len(test) - 1}: got {source}; choose one of these"
        )
    return torch.as_tensor(test.images[int(source)])[None]
