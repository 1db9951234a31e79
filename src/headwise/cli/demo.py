"""headwise demo: train on dates, test on unseen values, show translations, draw what the model looks at."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwise.cli.arguments import CommandParser
from headwise.cli.recipe import find_recipe
from headwise.cli.settings import sections
from headwise.cli.train import configure
from headwise.cli.using import warn
from headwise.config import RunConfig
from headwise.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from headwise.checkpoint.run import Run
    from headwise.data.pairs import Pairs

NAMES = {"de": "German", "zh": "Chinese", "fr": "French", "ja": "Japanese"}
# Chinese sentences show most in a map of attention: the order of the parts turns round.
FAVOURITES = ("zh", "ja", "de", "fr")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
NUM_EXAMPLES = 12


def demo(arguments: Sequence[str]) -> int:
    """Run the command."""
    known = sections()
    parser = CommandParser(
        "demo",
        "[--run DIR] [--SETTING VALUE ...]",
        "Train the recipe dates.yaml (English dates, times, numbers, money and percentages), score it on "
        "values it has never seen, print translations and draw what it looks at. A finished run is used "
        "again, a stopped one goes on.",
        "Every setting of headwise train is taken too, such as --model.d_model 64 or "
        "--data.dates.languages '[fr, ja]'.",
    )
    parser.add_settings(
        known, hidden=[s.path for section in known for s in section.settings if s.path != "run"]
    )
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    kind = given.get("data.kind", "dates")
    if kind != "dates":
        raise ConfigError(f"the demo is about dates: got data.kind={kind}; headwise train takes other text")
    config = configure(parser, find_recipe("dates.yaml"), given)
    from headwise.checkpoint.run import load_translator
    from headwise.data.corpus import load_corpus
    from headwise.train.loop import train

    _say("Training on dates, times, numbers, money and percentages; Ctrl-C stops, the same command goes on.")
    train(config)
    run = load_translator(config.folder)
    test = load_corpus(config.data).test
    assert test is not None, "the dates corpus comes with its test set"
    _say(f"Translating {len(test.source):,} test sentences; their values are in no training sentence.")
    translations = _translate(run, test)
    _show_examples(test, translations, config)
    _draw(run, test, config)
    _show_scores(test, translations, config)
    return 0


def _translate(run: Run, test: Pairs) -> list[str]:
    from headwise.cli.progress import tracked
    from headwise.decode.translate import Translator

    stream = Translator(run.model, run.tokenizer, beam_size=1, warn=warn).stream(test.source)
    return list(tracked(stream, len(test.source), "translating"))


def _show_examples(test: Pairs, translations: Sequence[str], config: RunConfig) -> None:
    """A dozen translations, as many of each language; the first wrong one is always among them."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("English", "", "translation", "", box=None, padding=(0, 2, 0, 0), header_style="bold")
    by_language = _by_language(test, config)
    count = max(1, NUM_EXAMPLES // len(by_language))
    for language, places in by_language.items():
        wrong = [place for place in places if translations[place] != test.target[place]][:1]
        for place in [*wrong, *(place for place in places if place not in wrong)][:count]:
            english = test.source[place].partition(" ")[2]
            is_right = translations[place] == test.target[place]
            verdict = Text("right", "green") if is_right else Text(f"wrong: {test.target[place]}", "red")
            table.add_row(Text(english), Text(language, "dim"), Text(translations[place]), verdict)
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        console = Console(file=sys.stdout, highlight=False, width=120)
    console.print()
    console.print(table)
    console.print()


def _draw(run: Run, test: Pairs, config: RunConfig) -> None:
    """Write both pictures and name them; without matplotlib say so and go on."""
    from headwise.see.maps import draw_attention
    from headwise.see.positions import draw_positions
    from headwise.see.reading import read_sentence

    places = _by_language(test, config)
    language = next(name for name in FAVOURITES if name in places)
    source = test.source[places[language][0]]
    # a written-out date has most to show, where the test set has one
    dated = [s for s in test.source if s.startswith(f"<{language}>") and any(day in s for day in WEEKDAYS)]
    sentence = min(dated, key=len, default=source)
    reading = read_sentence(run.model, run.tokenizer, sentence)
    folder = config.folder
    try:
        drawing = draw_attention([reading.stack("cross")], f"Cross-attention while translating {sentence}")
        drawing.save(folder / "attention.png")
        draw_positions(config.model, 64).save(folder / "positions.png")
    except MissingExtra as error:
        print(f"no pictures: {error}")
        return
    if drawing.notice:
        print(drawing.notice)
    print(f"picture of the cross-attention    {folder / 'attention.png'}")
    print(f"picture of the position encoding  {folder / 'positions.png'}")


def _show_scores(test: Pairs, translations: Sequence[str], config: RunConfig) -> None:
    print()
    for language, places in _by_language(test, config).items():
        right = sum(translations[place] == test.target[place] for place in places)
        share = 1000 * right // len(places) / 10  # rounded down: 100.0 means all
        counts = f"{right:,} of {len(places):,} unseen right"
        print(f"{NAMES[language]:<9} {counts:<30} exact match {share:.1f} %")


def _by_language(test: Pairs, config: RunConfig) -> dict[str, list[int]]:
    """Language -> places of its sentences in the test set; languages without any are left out."""
    from headwise.data.dates import language_of

    places: dict[str, list[int]] = {language: [] for language in config.data.dates.languages}
    for place, source in enumerate(test.source):
        places[language_of(source)].append(place)
    return {language: found for language, found in places.items() if found}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
