"""What the positions of one row are called: what the user calls them, else their ids, else where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from torch import Tensor

from headwise.doctor.adapt import Stream
from headwise.doctor.batch import Batch, numbers
from headwise.doctor.trace import Recording, Value
from headwise.errors import ConfigError
from headwise.see.lookups import Lookup, Lookups
from headwise.see.one_row import RowPass

Names = Iterable[Any] | Callable[[list[int]], Any]

NUMBERED = "positions that no id names are numbered, #0 the first"
REORDERED = (
    "the model cuts, shifts, turns or permutes its ids: names are those of what its embedding looked up, "
    "where it stands"
)
PUT_IN = "; an id that the model put in is shown as the id"


class TokenNames:
    """The names of each stream's tokens, as `stacks_of` asks for them.

    asks, answers: the inputs that a cross-attention's queries, and its keys, come from; "made" for queries of
    an encoder-decoder with one stream. tokens: names of the first, source_tokens: of the second, or what
    makes names of ids, such as a tokenizer's convert_ids_to_tokens. notes: filled as names are asked for.
    Errors: ConfigError for names that do not fit the row, and for those of a source where there is none.
    """

    def __init__(
        self,
        found: RowPass,
        tokens: Names | None,
        source_tokens: Names | None,
        asks: str = "made",
        answers: str = "",
    ) -> None:
        adapted, self._batch, self._record = found.adapted, found.batch, found.record
        self._streams = {stream.name: stream for stream in adapted.streams}
        self._misfits: dict[str, tuple[str, int, set[int]]] = {}
        self.notes: list[str] = []
        pair = len(adapted.streams) > 1 or adapted.kind == "encoder-decoder"
        tokens, source_tokens = _listed("tokens", tokens), _listed("source_tokens", source_tokens)
        if source_tokens is not None and not pair and not callable(source_tokens):
            raise ConfigError("source_tokens name a source, and this model reads one input: give tokens")
        first = adapted.streams[0].name if adapted.streams else ""
        last = "made"
        if len(adapted.streams) > 1:
            last = asks if asks in self._streams else adapted.streams[1].name
            first = next(name for name in self._streams if name != last)
        self._given: dict[str, tuple[str, Names | None]] = {}
        if pair:
            shared = tokens if callable(tokens) else None  # one tokenizer for both
            self._given[last] = "tokens", tokens
            self._given[first] = "source_tokens", shared if source_tokens is None else source_tokens
        else:
            self._given[first] = "tokens", tokens
        labels = next((place for place, leaf in enumerate(adapted.leaves) if leaf.role == "labels"), None)
        self._leaves = {stream.leaf: stream.name for stream in adapted.streams if stream.is_ids}
        if pair and len(adapted.streams) == 1 and labels is not None:
            self._leaves[labels] = "made"
        self._lookups = Lookups(self._record, self._batch, list(self._leaves))
        self._known = {
            name: self._named(option, names, self._streams.get(name))
            for name, (option, names) in self._given.items()
        }
        for name, (option, names) in self._given.items():
            if names is not None and not callable(names):
                self._misfits[name] = option, len(cast("Sequence[str]", names)), set()

    def __call__(self, stream: str, count: int, is_in_order: bool, value: Value) -> tuple[str, ...]:
        """The names of so many tokens of a stream: numbers where they stand in another order.

        value: what the queries, or the keys, of their first attention are.
        """
        lookup = self._lookups.under(value, count) if is_in_order else None
        if lookup is not None:
            stream = self._leaves[lookup.leaf]
        known = self._known.get(stream)
        self._note_fit(stream, known, lookup.length if lookup else count)
        if lookup is not None:
            if lookup.is_as_given and known is not None and len(known) == count:
                return known
            return self._looked_up(lookup, stream)
        if is_in_order and known is not None and len(known) == count:
            return known
        patches = self._patches(self._streams.get(stream), count) if is_in_order else None
        if patches is None and self._leaves:
            self._note(NUMBERED)
        return patches or tuple(f"#{place}" for place in range(count))

    def check(self) -> None:
        """Errors: ConfigError for names that were given, and were as many as the tokens nowhere."""
        for option, length, counts in self._misfits.values():
            if counts:
                raise ConfigError(
                    f"{option} must name each position of the row: got {length} names for "
                    f"{' or '.join(map(str, sorted(counts)))} positions"
                )

    def _note_fit(self, stream: str, known: tuple[str, ...] | None, count: int) -> None:
        if stream not in self._misfits:
            return
        if known is not None and len(known) == count:
            del self._misfits[stream]
        else:
            self._misfits[stream][2].add(count)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _looked_up(self, lookup: Lookup, stream: str) -> tuple[str, ...]:
        """Names that follow the ids to where the embedding looked them up."""
        option, given = self._given.get(stream, ("tokens", None))
        known = self._known.get(stream)
        real = [id for id in lookup.ids if id is not None]
        made = iter(_of_ids(option, given, real) if callable(given) else map(str, real))
        ids = tuple(f"#{n}" if id is None else next(made) for n, id in enumerate(lookup.ids))
        if lookup.is_as_given:
            return ids
        is_put_in = known is not None and given is not None and not callable(given) and -1 in lookup.origin
        self._note(REORDERED + (PUT_IN if is_put_in else ""))
        if known is None or len(known) != lookup.length:
            return ids
        return tuple(
            known[place] if place >= 0 else name for place, name in zip(lookup.origin, ids, strict=True)
        )

    def _named(self, option: str, given: Names | None, stream: Stream | None) -> tuple[str, ...] | None:
        ids = _ids(self._batch, stream)
        if given is None:
            return None if ids is None else tuple(map(str, ids))
        if not callable(given):
            return tuple(map(str, given))
        return None if ids is None else _of_ids(option, given, ids)

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


def _listed(option: str, given: Names | None) -> list[str] | Callable[[list[int]], Any] | None:
    """Names as a list of text, whatever held them. Errors: ConfigError for what holds none."""
    if given is None or callable(given):
        return given
    held: Any = given
    if isinstance(held, Tensor):
        held = held.flatten()
    if hasattr(held, "tolist"):  # a tensor's or an array's own numbers, not their forms
        held = held.tolist()
    try:
        return [str(each) for each in held]
    except TypeError:
        raise ConfigError(
            f"{option} must be names, or a function that makes them of ids: got {type(given).__name__}"
        ) from None


def _of_ids(option: str, make: Callable[[list[int]], Any], ids: list[int]) -> tuple[str, ...]:
    """What the user's function names ids; one that it has no name for keeps its number.

    Errors: ConfigError for what it raises, and for another number of names.
    """
    try:
        made = list(make(ids))
    except Exception as error:
        told = (str(error).strip().splitlines() or [""])[0][:300]
        raise ConfigError(
            f"{option} must be a function from a list of ids to a list of names: it raised "
            f"{type(error).__name__}: {told}"
        ) from error
    if len(made) != len(ids):
        raise ConfigError(
            f"{option} must give a name for each id: got {len(made)} names for {len(ids)} ids; give a "
            "function from a list of ids to a list of names"
        )
    return tuple(str(id) if name is None else str(name) for id, name in zip(ids, made, strict=True))


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
