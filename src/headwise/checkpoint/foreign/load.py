"""A directory of somebody else's checkpoint, or its name on the hub, to a model of ours."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from headwise.checkpoint.foreign.files import (
    CONFIG,
    GENERATION,
    REMEDY,
    TOKENIZER,
    is_there,
    read_object,
    read_weights,
    told,
)
from headwise.checkpoint.foreign.hub import download, is_hub_name
from headwise.checkpoint.foreign.layout import Entry, Layout, layouts
from headwise.checkpoint.foreign.options import Options, shown
from headwise.config import ModelConfig
from headwise.data.text_tokenizer import TextTokenizer
from headwise.errors import ConfigError, RunError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.language_model import LanguageModel
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder
from headwise.model.vision import ImageClassifier

# What the names begin with that stand beside the body.
_BESIDE = {
    *("lm_head", "cls", "classifier", "pre_classifier", "final_logits_bias"),
    *("vocab_transform", "vocab_layer_norm", "vocab_projector"),
}

# What a model computes in; float8 and whole numbers are codes of numbers that stand elsewhere.
_TYPES = torch.float32, torch.float64, torch.bfloat16, torch.float16
_MOST_COMPUTED = 2**28  # numbers of a table that no file holds; Marian's have 2^18

Model = LanguageModel | TextEncoder | MaskedLanguageModel | TextClassifier | ImageClassifier | EncoderDecoder


@dataclass(frozen=True)
class AnswerMarks:
    """The ids that frame and fill what an encoder-decoder writes: `Marks`, as `greedy` takes them."""

    pad_id: int
    bos_id: int
    eos_id: int


@dataclass(frozen=True)
class Pretrained:
    """A model with the weights of a foreign checkpoint.

    model: in evaluation mode, in the precision of its file.
    tokenizer: None where the checkpoint has no tokenizer.json.
    layout: what its files are called, as `save` takes it.
    start_id: begins every answer of an encoder-decoder; None for other models.
    end_ids: each of them ends a text, as `generate` takes them; none for encoders. Both as their
        generation_config.json has it, else config.json; the end last as the tokenizer has it.
    classes: what a classifier's outputs are called, in their order; none for other models.
    """

    model: Model
    tokenizer: TextTokenizer | None
    layout: str
    start_id: int | None = None
    end_ids: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def pad_id(self) -> int | None:
        """Fills rows up; None where no id means padding."""
        return self.model.config.pad_id

    @property
    def marks(self) -> AnswerMarks:
        """What `greedy` and `beam_search` ask for beside the model.

        Errors: ConfigError where the checkpoint does not say, as for anything but an encoder-decoder.
        """
        if self.pad_id is None or self.start_id is None or not self.end_ids:
            raise ConfigError(
                "an encoder-decoder's marks are start_id, end_ids and pad_id: the checkpoint has "
                f"{self.start_id}, {list(self.end_ids)} and {self.pad_id}; give greedy those that you know"
            )
        return AnswerMarks(self.pad_id, self.start_id, self.end_ids[0])


def load(path: str | Path) -> Pretrained:
    """The model of a directory as the transformers library writes it, or of a name on the hub.

    The directory has config.json, *.safetensors (one file, or parts with an index) and, for text,
    tokenizer.json; generation_config.json where there is one. A directory that exists goes before a name.
    Nothing is unpickled or executed. A body that was saved without a head (GPT2Model) makes logits with its
    embeddings; its `hidden` is the body. NaN and infinite numbers are loaded, with a warning that names
    their tensors.
    Errors: RunError for what is missing, damaged or beyond us, with all tensors that do not fit;
    MissingExtra for a name on the hub without huggingface_hub.
    Laws: draws no random number; save(load(x)) holds the tensors of x.
    """
    folder = _folder(path)
    values = read_object(folder / CONFIG)
    source = str(folder / CONFIG)
    layout = _layout(source, values.get("model_type"))
    architecture = _architecture(source, values.get("architectures"), layout)
    if values.get("quantization_config") is not None:
        raise RunError(f"{source}: the weights are quantized; expected float ones: load the original")
    tensors = usual_names(read_weights(folder), layout)
    options = Options(source, values, architecture, frozenset(tensors.named))
    try:
        config = layout.read(options)
        classes = options.classes if config.num_classes is not None else ()
        layers = config.num_encoder_layers + config.num_decoder_layers
        if layers > len(tensors.named):
            raise RunError(f"{folder} holds {len(tensors.named)} tensors: expected {layers} layers of them")
        with torch.device("meta"):  # no memory yet, and no random numbers
            model = cast("Model", layout.heads[architecture](config))
    except RunError:
        raise
    except (ConfigError, RuntimeError, OverflowError) as error:  # the last two: sizes that no tensor has
        raise RunError(f"{source} describes no model that can be built: {error}") from None
    fill(model, layout, tensors, folder)
    tokenizer = TextTokenizer.load(folder / TOKENIZER) if is_there(folder / TOKENIZER) else None
    start, ends = _start_and_ends(model, options, folder, tokenizer)
    return Pretrained(model.eval(), tokenizer, layout.name, start, ends, classes)


def _start_and_ends(
    model: Model, options: Options, folder: Path, tokenizer: TextTokenizer | None
) -> tuple[int | None, tuple[int, ...]]:
    """What their `generate` begins and ends with."""
    if not isinstance(model, LanguageModel | EncoderDecoder):
        return None, ()
    places = [options]
    if is_there(path := folder / GENERATION):
        places.insert(0, Options(str(path), read_object(path), options.architecture))
    ends = next((found for place in places if (found := place.ids("eos_token_id"))), ())
    if not ends and tokenizer is not None and tokenizer.end_id is not None:
        ends = (tokenizer.end_id,)
    if isinstance(model, LanguageModel):
        return None, ends
    names = ("decoder_start_token_id", "bos_token_id")  # the second stands in for the first
    starts = (place.optional(name) for name in names for place in places)
    return next((start for start in starts if start is not None), None), ends


def _folder(path: str | Path) -> Path:
    folder = Path(path)
    try:
        folder.stat()
        exists = True
    except (FileNotFoundError, NotADirectoryError):
        exists = False
    except (OSError, ValueError) as error:  # a name too long, a directory that may not be entered, a NUL
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot read {str(path)[:80]!r}: {reason}; name a checkpoint's directory") from None
    if not exists:
        if isinstance(path, str) and is_hub_name(path):
            return download(path)
        raise RunError(f"no directory {path}: expected a checkpoint's, or a name on the hub (gpt2, org/name)")
    if not folder.is_dir():
        raise RunError(f"{path} is a file: expected a directory with config.json and model.safetensors")
    if not os.path.lexists(folder / CONFIG) and os.path.isfile(folder / "config.yaml"):
        raise RunError(
            f"{folder} is a run that headwise train made: expected a checkpoint with {CONFIG}; "
            "read a run with headwise.load_run"
        )
    return folder


def _layout(source: str, name: object) -> Layout:
    known = layouts()
    if not isinstance(name, str) or name not in known:
        raise RunError(
            f"{source}: model_type must be one of {', '.join(known)}: got {shown(name)}; choose another"
        )
    return known[name]


def _architecture(source: str, named: object, layout: Layout) -> str:
    listed = cast("list[object]", named) if isinstance(named, list) else []
    first = listed[0] if listed else cast(object, named)
    if not isinstance(first, str) or first not in layout.heads:
        raise RunError(
            f"{source}: architectures must name one of {', '.join(layout.heads)}: got {shown(first)}; "
            "load a model that was saved as one of them"
        )
    return first


@dataclass(frozen=True)
class Tensors:
    """A file's tensors by the names that the layout uses, and what the file itself calls each."""

    named: Mapping[str, Tensor]
    spelt: Mapping[str, str]
    bare: str  # the prefix that the file leaves out
    clashes: tuple[tuple[str, str], ...] = ()  # two names in the file of one tensor, with other numbers

    def told(self, name: str) -> str:
        """The name as it stands in the file, or would stand there."""
        return told(self.spelt.get(name, name.removeprefix(self.bare) if self.bare else name))


def usual_names(found: Mapping[str, Tensor], layout: Layout) -> Tensors:
    """Every tensor under the name that the layout has for it: with the prefix, as it is spelt today."""
    prefix = layout.prefix
    is_bare = bool(prefix) and not any(name.startswith(prefix) for name in found)
    named: dict[str, Tensor] = {}
    spelt: dict[str, str] = {}
    clashes: list[tuple[str, str]] = []
    for name, tensor in found.items():
        usual = name
        for old, new in layout.respelled.items():
            usual = usual.removesuffix(old) + new if usual.endswith(old) else usual
        if is_bare and usual.partition(".")[0] not in _BESIDE:
            usual = prefix + usual
        if usual in named and not torch.equal(named[usual], tensor):
            clashes.append((name, spelt[usual]))
        named[usual], spelt[usual] = tensor, name
    return Tensors(named, spelt, prefix if is_bare else "", tuple(clashes))


def fill(model: nn.Module, layout: Layout, tensors: Tensors, folder: Path) -> None:
    """Put a file's tensors into a model on the meta device, in the precision of the file.

    Errors: RunError listing every tensor that is missing, unexpected or misshapen; nothing is filled half.
    """
    config = cast(ModelConfig, model.config)
    own = dict(model.named_parameters())
    entries = list(layout.entries(config, type(model)))
    assert {entry.ours for entry in entries} == set(own), "the layout does not know all of our parameters"
    named, wanted = dict(tensors.named), {name for entry in entries for name in entry.theirs}
    for second, usual in layout.ties:  # a file has one of the two, and seldom both
        if usual not in named and second in named and second not in wanted:
            named[usual] = named[second]
    problems = list(_misfits(entries, own, named, layout, tensors))
    if problems:
        raise RunError(f"{folder} does not fit its config.json: {'; '.join(problems)}")
    _warn_of_nan(folder, {tensors.told(name): named[name] for name in sorted(wanted & named.keys())})
    dtype = _dtype(named[name] for entry in entries for name in entry.theirs if name in named)
    values = {id(own[entry.ours]): nn.Parameter(_value(entry, named).to(dtype)) for entry in entries}
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, values[id(parameter)])
    assert not any(buffer.is_meta for buffer in model.buffers())


def _warn_of_nan(folder: Path, held: Mapping[str, Tensor]) -> None:
    """A model is loaded as it is, but nobody should look for the reason elsewhere."""
    broken = [name for name, tensor in held.items() if not bool(tensor.isfinite().all())]
    if broken:
        warnings.warn(
            f"{folder} holds NaN or infinite numbers, and so will the answers: {', '.join(broken)}; {REMEDY}",
            stacklevel=4,  # where load was called
        )


def _value(entry: Entry, named: Mapping[str, Tensor]) -> Tensor:
    if entry.formula is not None and entry.theirs[0] not in named:
        return entry.formula()
    return entry.to_ours([named[name] for name in entry.theirs]).contiguous()


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype(tensors: Iterator[Tensor]) -> torch.dtype:
    """One precision for the whole model: the highest."""
    dtype = torch.float32
    for n, tensor in enumerate(tensors):
        dtype = tensor.dtype if n == 0 else torch.promote_types(dtype, tensor.dtype)
    return dtype


def _misfits(
    entries: list[Entry],
    own: Mapping[str, Tensor],
    named: Mapping[str, Tensor],
    layout: Layout,
    tensors: Tensors,
) -> Iterator[str]:
    """Everything that is wrong with a file, each with the name that it has there."""
    wanted: set[str] = set()
    for entry in entries:
        wanted.update(entry.theirs)
        for name, expected in zip(entry.theirs, entry.to_theirs(own[entry.ours]), strict=True):
            here = tensors.told(name)
            if name not in named:
                if entry.formula is None:
                    yield f"{here}: missing, model {list(expected.shape)}"
                elif expected.numel() > _MOST_COMPUTED:
                    yield f"{here}: missing, and too large to be computed: model {list(expected.shape)}"
            elif named[name].shape != expected.shape:
                yield f"{here}: file {list(named[name].shape)}, model {list(expected.shape)}"
            elif named[name].dtype not in _TYPES:
                yield f"{here}: file {_word(named[name].dtype)}, expected {' or '.join(map(_word, _TYPES))}"
    for name, other in tensors.clashes:
        yield f"{told(name)}: not equal to {told(other)}, another name of the same tensor"
    ties = {second: usual for second, usual in layout.ties if usual in wanted}
    for name, tensor in tensors.named.items():
        usual = ties.get(name)
        if name in wanted or any(re.fullmatch(pattern, name) for pattern in layout.ignored):
            continue
        if usual is None:
            yield f"{tensors.told(name)}: unexpected, file {list(tensor.shape)}"
        elif named[usual] is not tensor and not torch.equal(named[usual], tensor):
            yield f"{tensors.told(name)}: not equal to {tensors.told(usual)}, to which config.json ties it"
