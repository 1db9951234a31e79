"""The `dates` corpus: English dates, times, numbers, money and percentages, and their translations.

    <de> Friday, March 5, 2021      Freitag, 5. März 2021
    <zh> $1,234.50                  US$1,234.50

Half of the corpus are dates of the years 1900 to 2099. Each pair writes a value in one of many
English styles (`date_styles`), behind a tag that asks for a language; the target is CLDR's form in
that language (`date_targets`) and is a function of the source, so that exact match is fair.
"""

from __future__ import annotations

from headwise.config import LANGUAGES, DatesConfig
from headwise.data.date_styles import STYLES, states_weekday, write_english
from headwise.data.date_targets import write_target
from headwise.data.date_values import KINDS, SHARES, Dice, Kind, Value
from headwise.data.pairs import Pairs
from headwise.errors import ConfigError, DataError


def tag(language: str) -> str:
    """The word that asks for a translation into the language: '<de>'.

    Errors: ConfigError for a language that the corpus does not have.
    """
    if language not in LANGUAGES:
        raise ConfigError(f"the language must be one of {', '.join(LANGUAGES)}: got {language!r}")
    return f"<{language}>"


def language_of(source: str) -> str:
    """The language that a source text asks for.

    Errors: DataError when it does not begin with a tag.
    """
    for language in LANGUAGES:
        if source.startswith(f"{tag(language)} "):
            return language
    raise DataError(
        f"a source of the dates corpus must begin with one of {', '.join(map(tag, LANGUAGES))} and a space: "
        f"got {source[:40]!r}; write '{tag(LANGUAGES[0])} {source[:40]}'"
    )


def make_dates(config: DatesConfig) -> tuple[Pairs, Pairs, Pairs]:
    """Training, validation and test pairs, the same bytes for the same configuration everywhere.

    Values of validation and test are all different and come in no other of the three sets, in no
    style and no language. Training uses a value again, in a style drawn anew, only when its kind
    has no more values. Languages follow each other in the order of config.languages.

    Errors: ConfigError when a size asks for more than exists; it names the largest that works.
    Law: a source has one target, and no source of validation or test is in another set.
    """
    _check_sizes(config)
    dice = Dice(config.seed)
    train: list[tuple[Kind, Value]] = []
    validation: list[tuple[Kind, Value]] = []
    test: list[tuple[Kind, Value]] = []
    for kind in KINDS:
        num_train, num_test = _share(kind, config.train_size), _share(kind, config.test_size)
        held_out = _num_held_out(kind, config)
        items = [(kind, value) for value in kind.draw(dice, min(kind.limit, held_out + num_train))]
        test += items[:num_test]
        validation += items[num_test:held_out]
        known = items[held_out:]
        train += [known[i % len(known)] for i in range(num_train)]
    return _write(train, config, dice), _write(validation, config, dice), _write(test, config, dice)


def _share(kind: Kind, size: int) -> int:
    """How many of `size` items are of this kind; the kinds' counts add up to `size`."""
    before = sum(other.share for other in KINDS[: KINDS.index(kind)])
    return (before + kind.share) * size // SHARES - before * size // SHARES


def _check_sizes(config: DatesConfig) -> None:
    held_out = config.validation_size + config.test_size
    # Each share rounds up by less than one item, so one or two items less than the most always fit.
    fits = min((_most_held_out(kind) - 2) * SHARES // kind.share for kind in KINDS)
    if any(_num_held_out(kind, config) > _most_held_out(kind) for kind in KINDS):
        raise ConfigError(
            f"validation_size + test_size must leave half of each kind of value to training: got "
            f"{config.validation_size} + {config.test_size} = {held_out}; {fits} fit"
        )
    fits = min((_num_forms(kind, config) - 1) * SHARES // kind.share for kind in KINDS)
    if any(_share(kind, config.train_size) > _num_forms(kind, config) for kind in KINDS):
        raise ConfigError(
            f"train_size must not pass what values, styles and languages can give: got {config.train_size} "
            f"for {', '.join(config.languages)} with {held_out} values held out; {fits} fits"
        )


def _num_held_out(kind: Kind, config: DatesConfig) -> int:
    return _share(kind, config.validation_size) + _share(kind, config.test_size)


def _most_held_out(kind: Kind) -> int:
    return kind.limit // 2


def _num_forms(kind: Kind, config: DatesConfig) -> int:
    """How many training pairs a kind has: each value in each style and each language."""
    return (kind.limit - _num_held_out(kind, config)) * len(STYLES[kind.name]) * len(config.languages)


def _write(items: list[tuple[Kind, Value]], config: DatesConfig, dice: Dice) -> Pairs:
    source: list[str] = []
    target: list[str] = []
    for i, (kind, value) in enumerate(dice.sample(items)):
        language = config.languages[i % len(config.languages)]
        style = dice.pick(STYLES[kind.name])
        source.append(f"{tag(language)} {write_english(style, value)}")
        target.append(write_target(language, value, states_weekday(style)))
    return Pairs(source, target)
