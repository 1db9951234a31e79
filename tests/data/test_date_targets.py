from __future__ import annotations

from datetime import date, time
from decimal import Decimal

import pytest

from headwise.config import LANGUAGES
from headwise.data.date_targets import plain_spaces, write_target
from headwise.data.date_values import CURRENCIES, KINDS, Dice, Money, Percentage, Value

DAY, FIRST = date(2021, 3, 5), date(1900, 1, 1)
CLOCK, SECONDS = time(9, 5), time(15, 5, 9)
NUMBER = Decimal("-1234567.5")


@pytest.mark.parametrize(
    ("value", "names_weekday", "german", "chinese", "french", "japanese"),
    [
        (DAY, False, "5. März 2021", "2021年3月5日", "5 mars 2021", "2021年3月5日"),
        (
            DAY,
            True,
            "Freitag, 5. März 2021",
            "2021年3月5日星期五",
            "vendredi 5 mars 2021",
            "2021年3月5日金曜日",
        ),
        (FIRST, False, "1. Januar 1900", "1900年1月1日", "1 janvier 1900", "1900年1月1日"),
        (CLOCK, False, "09:05", "09:05", "09:05", "9:05"),
        (SECONDS, False, "15:05:09", "15:05:09", "15:05:09", "15:05:09"),
        (NUMBER, False, "-1.234.567,5", "-1,234,567.5", "-1 234 567,5", "-1,234,567.5"),
        (Decimal(0), False, "0", "0", "0", "0"),
        (
            Money("USD", Decimal("1234.5")),
            False,
            "1.234,50 $",
            "US$1,234.50",
            "1 234,50 $US",
            "$1,234.50",
        ),
        (Money("EUR", Decimal("-0.05")), False, "-0,05 €", "-€0.05", "-0,05 €", "-€0.05"),
        (Money("GBP", Decimal(7)), False, "7,00 £", "£7.00", "7,00 £GB", "£7.00"),
        (Money("JPY", Decimal(1234)), False, "1.234 ¥", "JP¥1,234", "1 234 JPY", "\uffe51,234"),
        (Money("CHF", Decimal(10)), False, "10,00 CHF", "CHF10.00", "10,00 CHF", "CHF10.00"),
        (Percentage(Decimal("12.5")), False, "12,5 %", "12.5%", "12,5 %", "12.5%"),
        (Percentage(Decimal("-0.25")), False, "-0,25 %", "-0.25%", "-0,25 %", "-0.25%"),
        (Percentage(Decimal(999)), False, "999 %", "999%", "999 %", "999%"),
    ],
)
def test_forms_that_readers_expect(
    value: Value, names_weekday: bool, german: str, chinese: str, french: str, japanese: str
) -> None:
    written = [write_target(language, value, names_weekday) for language in LANGUAGES]
    assert written == [german, chinese, french, japanese]


@pytest.mark.parametrize("language", LANGUAGES)
def test_agrees_with_the_patterns_of_cldr_filled_in_by_hand(language: str) -> None:
    """The oracle takes only symbols, names and patterns from babel; the filling is done here."""
    from babel import Locale

    locale = Locale.parse(language)
    symbols = locale.number_symbols["latn"]

    def figure(number: Decimal, places: int | None = None) -> str:
        text = f"{abs(number):,f}" if places is None else f"{abs(number):,.{places}f}"
        return text.translate({ord(","): symbols["group"], ord("."): symbols["decimal"]})

    def fill(value: Value, names_weekday: bool) -> str:
        if isinstance(value, date):
            pattern = locale.date_formats["full" if names_weekday else "long"].pattern
            months, days = locale.months["format"]["wide"], locale.days["format"]["wide"]
            filled = pattern.replace("EEEE", "\1").replace("MMMM", "\2").replace("M", "\3")
            filled = filled.replace("d", str(value.day)).replace("y", str(value.year))
            filled = filled.replace("\1", days[value.weekday()]).replace("\2", months[value.month])
            return filled.replace("\3", str(value.month))
        if isinstance(value, time):
            pattern = locale.time_formats["medium" if value.second else "short"].pattern
            filled = pattern.replace("HH", f"{value.hour:02}").replace("H", str(value.hour))
            return filled.replace("mm", f"{value.minute:02}").replace("ss", f"{value.second:02}")
        if isinstance(value, Money):
            number, pattern = value.amount, locale.currency_formats["standard"].pattern
            filled = pattern.replace("#,##0.00", figure(number, CURRENCIES[value.code]))
            filled = filled.replace("\u00a4", locale.currency_symbols.get(value.code, value.code))
        elif isinstance(value, Percentage):
            number, pattern = value.number, locale.percent_formats[None].pattern
            filled = pattern.replace("#,##0", figure(number)).replace("%", symbols["percentSign"])
        else:
            number, pattern = value, locale.decimal_formats[None].pattern
            filled = pattern.replace("#,##0.###", figure(number))
        return symbols["minusSign"] + filled if number < 0 else filled

    for kind in KINDS:
        for value in kind.draw(Dice(3), 400):
            for names_weekday in (False, True):
                expected = fill(value, names_weekday).replace("\u00a0", " ").replace("\u202f", " ")
                assert write_target(language, value, names_weekday) == expected


@pytest.mark.parametrize("language", LANGUAGES)
def test_targets_have_only_plain_spaces(language: str) -> None:
    for kind in KINDS:
        for value in kind.draw(Dice(5), 200):
            text = write_target(language, value, names_weekday=True)
            assert not any(mark.isspace() and mark != " " for mark in text), text


def test_plain_spaces_replaces_no_break_spaces_only() -> None:
    assert plain_spaces("1\u202f234,5\u00a0% 5\u5e74") == "1 234,5 % 5\u5e74"


def test_cldr_gives_no_break_spaces_that_would_otherwise_reach_the_corpus() -> None:
    from babel.numbers import format_decimal

    raw = format_decimal(NUMBER, locale="fr")
    assert "\u202f" in raw
    assert plain_spaces(raw) == write_target("fr", NUMBER)
