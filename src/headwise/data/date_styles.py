"""How English writes the values of the `dates` corpus: templates, filled from each value.

Conventions that make every text mean one thing:
- numeric dates: 3/5/2021 is month/day/year, 2021-03-05 and 2021/03/05 are year, month, day;
- times without AM or PM are of the 24-hour clock; 12:05 AM is 00:05;
- in numbers the comma (or a space) groups thousands, the point starts the fraction, and four digits
  may stand ungrouped;
- the yen sign alone is Japanese, a dollar sign alone is of the United States (as in CLDR);
- parentheses around a number make it negative.
Names of months, weekdays and currencies and the currencies' signs are CLDR's, through babel.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, time
from functools import lru_cache
from typing import TYPE_CHECKING

from headwise.data.date_values import CURRENCIES, Money, Percentage, Value

if TYPE_CHECKING:
    from decimal import Decimal

# "[" and "]" enclose what a sign stands before; each of these becomes one style.
_SIGNS = (
    ("{hyphen}", ""),  # 5  -5
    ("{minus}", ""),  # 5  minus 5
    ("{plus}", ""),  # +5  U+2212 5
    ("{negative}", ""),  # plus 5  negative 5
    ("{open}", "{close}"),  # 5  (5)
)
_POSITIVE = {"hyphen": "", "minus": "", "plus": "+", "negative": "plus ", "open": "", "close": ""}
_NEGATIVE = {
    "hyphen": "-",
    "minus": "minus ",
    "plus": "\u2212",
    "negative": "negative ",
    "open": "(",
    "close": ")",
}


def _with_signs(*templates: str) -> tuple[str, ...]:
    return tuple(t.replace("[", before).replace("]", after) for t in templates for before, after in _SIGNS)


STYLES: dict[str, tuple[str, ...]] = {
    "date": (
        "{month} {d}, {y}",
        "{month} {nth}, {y}",
        "{mon} {d}, {y}",
        "{mon_dot} {d}, {y}",
        "{d} {month} {y}",
        "{d} {mon} {y}",
        "{nth} {month} {y}",
        "{nth} of {month}, {y}",
        "the {nth} of {month} {y}",
        "{dd}-{mon}-{y}",
        "{y} {month} {d}",
        "{y}-{mm}-{dd}",
        "{y}/{mm}/{dd}",
        "{m}/{d}/{y}",
        "{mm}/{dd}/{y}",
        "{weekday}, {month} {d}, {y}",
        "{weekday}, {month} {nth}, {y}",
        "{weekday}, {d} {month} {y}",
        "{weekday} the {nth} of {month} {y}",
        "{month} {d}, {y} ({weekday})",
        "{day}, {mon} {d}, {y}",
        "{day}, {dd} {mon} {y}",
        "{day} {nth} {month} {y}",
        "{day} {y}-{mm}-{dd}",
    ),
    "clock": (
        "{HH}:{mm}",
        "{H}:{mm}",
        "{HH}:{mm} hours",
        "{HH}{mm} hours",
        "{HH}h{mm}",
        "{h}:{mm} {AM}",
        "{hh}:{mm} {AM}",
        "{h}:{mm} {am}",
        "{h}:{mm}{am}",
        "{h}:{mm} {a_m}",
        "{h}.{mm} {am}",
        "{past} {am}",
    ),
    "seconds": (
        "{HH}:{mm}:{ss}",
        "{H}:{mm}:{ss}",
        "{HH}:{mm}:{ss} hours",
        "{HH}h{mm}m{ss}s",
        "{h}:{mm}:{ss} {AM}",
        "{hh}:{mm}:{ss} {AM}",
        "{h}:{mm}:{ss} {am}",
        "{h}:{mm}:{ss}{am}",
        "{h}:{mm}:{ss} {a_m}",
        "{h}.{mm}.{ss} {am}",
        "{h}:{mm} {AM} and {seconds}",
        "{seconds} past {h}:{mm} {am}",
    ),
    "decimal": _with_signs("[{grouped}]", "[{plain}]", "[{spaced}]", "[{point}]"),
    "currency": _with_signs(
        "[{symbol}{grouped}]",
        "[{symbol}{plain}]",
        "[{symbol}{short}]",
        "{code} [{grouped}]",
        "{code} [{plain}]",
        "[{grouped}] {code}",
        "[{short}] {code}",
        "[{grouped}] {names}",
        "[{short}] {name}",
    ),
    "percentage": _with_signs(
        "[{grouped}%]",
        "[{grouped} %]",
        "[{grouped}] percent",
        "[{grouped}] per cent",
        "[{grouped}] pct",
        "[{grouped}] per hundred",
        "[{grouped}] in a hundred",
        "[{grouped}] out of 100",
    ),
}


def states_weekday(template: str) -> bool:
    """Whether a text of this style names the day of the week, which its translation then keeps."""
    return "{weekday}" in template or "{day}" in template


def write_english(template: str, value: Value) -> str:
    """Write the value in the style of a template, which must be one of STYLES for its kind."""
    return template.format_map(fields(value))


@dataclass(frozen=True)
class _English:
    months: tuple[str, ...]
    months_short: tuple[str, ...]
    weekdays: tuple[str, ...]
    weekdays_short: tuple[str, ...]
    symbols: dict[str, str]
    singular: dict[str, str]
    plural: dict[str, str]


@lru_cache(maxsize=1)
def _english() -> _English:
    from babel.dates import get_day_names, get_month_names
    from babel.numbers import get_currency_name, get_currency_symbol

    def months(width: str) -> tuple[str, ...]:
        names = get_month_names(width, locale="en")  # type: ignore[arg-type]
        return tuple(names[month] for month in range(1, 13))

    def weekdays(width: str) -> tuple[str, ...]:
        names = get_day_names(width, locale="en")  # type: ignore[arg-type]
        return tuple(names[day] for day in range(7))

    return _English(
        months("wide"),
        months("abbreviated"),
        weekdays("wide"),
        weekdays("abbreviated"),
        {code: get_currency_symbol(code, locale="en") for code in CURRENCIES},
        {code: get_currency_name(code, count=1, locale="en") for code in CURRENCIES},
        {code: get_currency_name(code, count=2, locale="en") for code in CURRENCIES},
    )


def fields(value: Value) -> dict[str, str]:
    """What the templates of the value's kind can name."""
    if isinstance(value, date):
        return _date_fields(value)
    if isinstance(value, time):
        return _time_fields(value)
    if isinstance(value, Money):
        return _money_fields(value)
    number = value.number if isinstance(value, Percentage) else value
    return _sign_fields(number) | _number_fields(f"{abs(number):,f}")


def _date_fields(day: date) -> dict[str, str]:
    english = _english()
    mon = english.months_short[day.month - 1]
    return {
        "y": str(day.year),
        "m": str(day.month),
        "mm": f"{day.month:02}",
        "d": str(day.day),
        "dd": f"{day.day:02}",
        "nth": _ordinal(day.day),
        "month": english.months[day.month - 1],
        "mon": mon,
        "mon_dot": mon if mon == english.months[day.month - 1] else f"{mon}.",  # May is no abbreviation
        "weekday": english.weekdays[day.weekday()],
        "day": english.weekdays_short[day.weekday()],
    }


def _ordinal(day: int) -> str:
    teens = 10 < day < 20
    return f"{day}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def _time_fields(moment: time) -> dict[str, str]:
    hour = moment.hour % 12 or 12
    half = "a" if moment.hour < 12 else "p"
    return {
        "H": str(moment.hour),
        "HH": f"{moment.hour:02}",
        "h": str(hour),
        "hh": f"{hour:02}",
        "mm": f"{moment.minute:02}",
        "ss": f"{moment.second:02}",
        "seconds": f"{moment.second} second{'' if moment.second == 1 else 's'}",
        "AM": f"{half.upper()}M",
        "am": f"{half}m",
        "a_m": f"{half}.m.",
        "past": _past(hour, moment.minute),
    }


def _past(hour: int, minute: int) -> str:
    if minute == 0:
        return str(hour)
    if minute > 30:
        return f"{hour}:{minute}"
    minutes = {15: "a quarter", 30: "half"}.get(minute, str(minute))
    return f"{minutes} past {hour}"


def _sign_fields(number: Decimal) -> dict[str, str]:
    return _NEGATIVE if number < 0 else _POSITIVE


def _number_fields(grouped: str) -> dict[str, str]:
    return {
        "grouped": grouped,
        # style guides let four digits stand without a comma, and no more
        "plain": grouped.replace(",", "") if grouped.count(",") == 1 and grouped[1] == "," else grouped,
        "spaced": grouped.replace(",", " "),
        "point": grouped.replace(".", " point "),
        "short": grouped.removesuffix(".00"),
    }


def _money_fields(money: Money) -> dict[str, str]:
    english = _english()
    numbers = _number_fields(f"{abs(money.amount):,.{CURRENCIES[money.code]}f}")
    names = {
        "code": money.code,
        "symbol": english.symbols[money.code],
        "names": english.plural[money.code],
        "name": (english.singular if numbers["short"] == "1" else english.plural)[money.code],
    }
    return _sign_fields(money.amount) | numbers | names
