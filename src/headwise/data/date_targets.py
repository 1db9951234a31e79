"""The one right translation of each value of the `dates` corpus: CLDR's form, through babel.

| value                         | CLDR's pattern                       | German                  |
| ----------------------------- | ------------------------------------ | ----------------------- |
| day, weekday not named        | date, long                           | 5. März 2021            |
| day, weekday named            | date, full                           | Freitag, 5. März 2021   |
| time of day                   | time, short; medium with seconds     | 15:05; 15:05:09         |
| number                        | decimal                              | -1.234,5                |
| money                         | currency, standard, its own places   | 1.234,50 $              |
| percentage                    | percent, with all its places         | 12,5 %                  |
"""

from __future__ import annotations

from datetime import date, time
from functools import cache
from typing import TYPE_CHECKING

from headwise.data.date_values import Money, Percentage, Value

if TYPE_CHECKING:
    from babel import Locale


def write_target(language: str, value: Value, names_weekday: bool = False) -> str:
    """Write the value as CLDR has it for the language; names_weekday adds it to a day."""
    from babel.dates import format_date, format_time
    from babel.numbers import format_currency, format_decimal, format_percent

    locale = _locale(language)
    if isinstance(value, date):
        text = format_date(value, "full" if names_weekday else "long", locale)
    elif isinstance(value, time):
        text = format_time(value, "medium" if value.second else "short", locale=locale)
    elif isinstance(value, Money):
        text = format_currency(value.amount, value.code, locale=locale)
    elif isinstance(value, Percentage):
        # CLDR's pattern shows no places; without quantization babel adds as many as the value has.
        text = format_percent(value.number.scaleb(-2), locale=locale, decimal_quantization=False)
    else:
        text = format_decimal(value, locale=locale)
    return plain_spaces(text)


def plain_spaces(text: str) -> str:
    """Replace CLDR's no-break spaces (U+00A0, U+202F) by plain ones: only here is this done."""
    return text.replace("\u00a0", " ").replace("\u202f", " ")


@cache
def _locale(language: str) -> Locale:
    from babel import Locale

    return Locale.parse(language)
