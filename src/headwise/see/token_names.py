"""What the positions of one row are called: what the user calls them, else their ids, else where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from headwise.doctor.adapt import Stream
from headwise.doctor.batch import Batch, numbers
from headwise.doctor.trace import Recording
from headwise.errors import ConfigError
from headwise.see.one_row import RowPass

Names = Sequence[str] | Callable[[list[int]], Any]


class TokenNames:
    """The names of each stream's tokens, as `stacks_of` asks for them.

    tokens, source_tokens: names, or what makes names of ids, such as a tokenizer's convert_ids_to_tokens.
    Errors: ConfigError for names that do not fit the row, and for those of a source where there is none.
    """

    def __init__(self, found: RowPass, tokens: Names | None, source_tokens: Names | None) -> None:
        adapted, self._batch, self._record = found.adapted, found.batch, found.record
        self._streams = {stream.name: stream for stream in adapted.streams}
        self._misfits: dict[str, tuple[str, int, set[int]]] = {}
        pair = len(adapted.streams) > 1 or adapted.kind == "encoder-decoder"
        if source_tokens is not None and not pair:
            raise ConfigError("source_tokens name a source, and this model reads one input: give tokens")
        first = adapted.streams[0].name if adapted.streams else ""
        last = adapted.streams[1].name if len(adapted.streams) > 1 else "made"
        given: dict[str, tuple[str, Names | None]] = {last: ("tokens", tokens)}
        if pair:
            shared = tokens if callable(tokens) else None  # one tokenizer for both
            given[first] = "source_tokens", shared if source_tokens is None else source_tokens
        else:
            given[first] = "tokens", tokens
        self._known = {name: self._named(*each, self._streams.get(name)) for name, each in given.items()}
        for name, (option, names) in given.items():
            if names is not None and not callable(names) and (pair or name == first):
                self._misfits[name] = option, len(names), set()

    def __call__(self, stream: str, count: int, is_in_order: bool) -> tuple[str, ...]:
        """The names of so many tokens of a stream: numbers where they stand in another order."""
        known = self._known.get(stream)
        if known is not None and stream in self._misfits:
            if len(known) == count:
                del self._misfits[stream]
            else:
                self._misfits[stream][2].add(count)
        if is_in_order and known is not None and len(known) == count:
            return known
        patches = self._patches(self._streams.get(stream), count) if is_in_order else None
        return patches or tuple(map(str, range(count)))

    def check(self) -> None:
        """Errors: ConfigError for names that were given, and were as many as the tokens nowhere."""
        for option, length, counts in self._misfits.values():
            if counts:
                raise ConfigError(
                    f"{option} must name each position of the row: got {length} names for "
                    f"{' or '.join(map(str, sorted(counts)))} positions"
                )

    def _named(self, option: str, given: Names | None, stream: Stream | None) -> tuple[str, ...] | None:
        ids = _ids(self._batch, stream)
        if given is None:
            return None if ids is None else tuple(map(str, ids))
        if not callable(given):
            return tuple(map(str, given))
        if ids is None:
            return None
        made = tuple(map(str, given(ids)))
        if len(made) != len(ids):
            raise ConfigError(
                f"{option} must give a name for each id: got {len(made)} names for {len(ids)} ids; give a "
                "function from a list of ids to a list of names"
            )
        return made

    def _patches(self, stream: Stream | None, count: int) -> tuple[str, ...] | None:
        """r1 c1, r1 c2, ... of a picture cut up; one token more is the class token, in front."""
        held = self._batch.read(stream) if stream is not None and not stream.is_ids else None
        if held is None or held.dim() != 4:
            return None
        for rows, columns in _convolved(self._record) or _squares(held):
            cells = tuple(f"r{row + 1} c{column + 1}" for row in range(rows) for column in range(columns))
            if len(cells) == count:
                return cells
            if len(cells) + 1 == count:
                return ("class", *cells)
        return None


def _ids(batch: Batch, stream: Stream | None) -> list[int] | None:
    if stream is None or not stream.is_ids or batch.read(stream).dim() > 2:
        return None
    return numbers(batch.read(stream))


def _convolved(record: Recording) -> list[tuple[int, int]]:
    """Rows and columns of what each convolution gave: those of the patches, where it cut them out."""
    made = [op.out.shape for op in record.ops if op.name == "convolution" and op.outputs]
    return [shape[2:] for shape in made if len(shape) == 4]


def _squares(image: Tensor) -> list[tuple[int, int]]:
    """Rows and columns of the square patches that fill a picture, channels first or last."""
    return [
        (height // side, width // side)
        for height, width in (image.shape[2:], image.shape[1:3])
        for side in range(1, min(height, width) + 1)
        if height % side == width % side == 0
    ]
