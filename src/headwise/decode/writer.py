"""Text in, the text that follows out: streamed, stopped at words, many prompts at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwise.data.text_tokenizer import TextTokenizer
from headwise.decode.sample import generate
from headwise.decode.sampling import Sampling
from headwise.errors import DataError
from headwise.model.language_model import LanguageModel

_BROKEN = "\ufffd"  # what bytes that are no character yet decode to


class Writer:
    """Continues texts with a language model and its tokenizer.

    Where a prompt has no token, the vocabulary's begin or end mark stands in; a line end, if it has neither.
    """

    def __init__(self, model: LanguageModel, tokenizer: TextTokenizer) -> None:
        self._model, self._tokenizer = model, tokenizer

    def write(
        self,
        prompts: Sequence[str],
        max_new_tokens: int,
        sampling: Sampling | None = None,
        *,
        seed: int = 0,
        stop: Sequence[str] = (),
        on_text: Callable[[int, str], None] | None = None,
    ) -> list[str]:
        """What follows each prompt; the prompt is not repeated.

        stop: texts that end an answer where they first appear; they are not part of it.
        on_text: told of each prompt's number and the next piece of its answer, as soon as it is certain.

        Errors: DataError as encode; ConfigError as generate.
        """
        answers = [_Answer(self._tokenizer, stop) for _ in prompts]

        def take(news: list[tuple[int, int]]) -> list[bool]:
            goes_on: list[bool] = []
            for row, token in news:
                piece = answers[row].take(token)
                if piece and on_text is not None:
                    on_text(row, piece)
                goes_on.append(not answers[row].is_stopped)
            return goes_on

        tokenizer = self._tokenizer
        ends = [i for i in (tokenizer.end_id,) if i is not None]
        marks = (tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id)
        forbidden = [i for i in marks if i is not None and i not in ends]
        generate(
            self._model,
            [self.encode(prompt) for prompt in prompts],
            max_new_tokens,
            sampling,
            seed=seed,
            end_ids=ends,
            forbidden_ids=forbidden,
            on_tokens=take,
        )
        for row, answer in enumerate(answers):
            rest = answer.close()
            if rest and on_text is not None:
                on_text(row, rest)
        return [answer.text for answer in answers]

    def encode(self, prompt: str) -> list[int]:
        """The tokens that a prompt begins with.

        Errors: DataError for characters that the vocabulary does not have.
        """
        ids = self._tokenizer.encode([prompt])[0]
        if self._tokenizer.unk_id is not None and self._tokenizer.unk_id in ids:
            unknown = sorted({c for c in prompt if self._tokenizer.unk_id in self._tokenizer.encode([c])[0]})
            shown = prompt if len(prompt) <= 40 else f"{prompt[:37]}..."
            raise DataError(
                "a prompt must be made of characters that the model has seen: got "
                f"{', '.join(map(repr, unknown[:5]))} in {shown!r}; leave them out"
            )
        if ids:
            return ids
        for mark in (self._tokenizer.begin_id, self._tokenizer.end_id):
            if mark is not None:
                return [mark]
        return self._tokenizer.encode(["\n"])[0]


class _Answer:
    """One answer as it grows: what is certain is given out, what may still become a stop text is held."""

    def __init__(self, tokenizer: TextTokenizer, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, [text for text in stop if text]
        self._ids: list[int] = []
        self.text = ""
        self._told = 0
        self.is_stopped = False

    def take(self, token: int) -> str:
        """One more token; the piece of text that is now certain."""
        self._ids.append(token)
        text = self._tokenizer.decode([self._ids])[0]
        places = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        if places:
            self.is_stopped, self.text = True, text[: min(places)]
            return self._tell(len(self.text))
        self.text = text
        whole = text.rstrip(_BROKEN)
        return self._tell(len(whole) - self._held(whole))

    def close(self) -> str:
        """What was held to the last."""
        return self._tell(len(self.text))

    def _held(self, text: str) -> int:
        """The longest end of the text that begins a stop text."""
        sizes = [n for stop in self._stop for n in range(1, len(stop)) if text.endswith(stop[:n])]
        return max(sizes, default=0)

    def _tell(self, end: int) -> str:
        piece = self.text[self._told : end]
        self._told = max(self._told, end)
        return piece
