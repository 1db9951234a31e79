from __future__ import annotations

from collections.abc import Iterator
from datetime import date, time, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from english_reader import Read, read_english
from headwise.data import date_styles
from headwise.data.date_styles import STYLES, states_weekday, write_english
from headwise.data.date_values import CURRENCIES, KINDS, LARGEST, Dice, Money, Percentage, Value

CENT = Decimal("0.01")


def numbers(largest: Decimal) -> st.SearchStrategy[Decimal]:
    """Numbers of at most two places, without closing zeros and without -0, as the corpus draws them."""
    hundredths = st.integers(-int(largest / CENT), int(largest / CENT))
    return hundredths.map(lambda n: Decimal(n // 100) if n % 100 == 0 else Decimal(n * CENT).normalize())


def money() -> st.SearchStrategy[Money]:
    def of(code: str) -> st.SearchStrategy[Money]:
        return numbers(LARGEST).map(lambda n: Money(code, n if CURRENCIES[code] else Decimal(int(n))))

    return st.sampled_from(sorted(CURRENCIES)).flatmap(of)


VALUES: dict[str, st.SearchStrategy[Value]] = {
    "date": st.dates(date(1900, 1, 1), date(2099, 12, 31)),
    "clock": st.times().map(lambda t: t.replace(second=0, microsecond=0)),
    "seconds": st.times().filter(lambda t: t.second > 0).map(lambda t: t.replace(microsecond=0)),
    "decimal": numbers(LARGEST),
    "currency": money(),
    "percentage": numbers(Decimal("999.99")).map(Percentage),
}


def kind_of(value: Value) -> str:
    if isinstance(value, time):
        return "seconds" if value.second else "clock"
    return {date: "date", Decimal: "decimal", Money: "currency", Percentage: "percentage"}[type(value)]


def every_text() -> Iterator[tuple[str, Read]]:
    """Each style of each value: all days of two years, all minutes, and many of the other kinds."""
    days = [date(1999, 1, 1) + timedelta(day) for day in range(2 * 365)]
    drawn = {kind.name: kind.draw(Dice(7), 800) for kind in KINDS}
    for kind, values in (drawn | {"date": days}).items():
        for value in values:
            filled = date_styles.fields(value)
            for template in STYLES[kind]:
                yield template.format_map(filled), Read(value, states_weekday(template))


def ambiguous_texts() -> list[str]:
    meanings: dict[str, Read] = {}
    return [text for text, meaning in every_text() if meanings.setdefault(text, meaning) != meaning]


@given(st.sampled_from(sorted(STYLES)).flatmap(lambda k: st.tuples(VALUES[k], st.sampled_from(STYLES[k]))))
def test_reading_what_was_written_gives_the_value_back(example: tuple[Value, str]) -> None:
    value, template = example
    assert read_english(write_english(template, value)) == Read(value, states_weekday(template))


def test_no_text_has_two_meanings() -> None:
    assert ambiguous_texts() == []


@pytest.mark.parametrize(
    ("kind", "template"),
    [
        ("date", "{d}/{m}/{y}"),  # the day first, beside the month first
        ("clock", "{h}:{mm}"),  # no AM or PM, beside the 24-hour clock
        ("decimal", "{plain}"),  # a lost sign
        ("percentage", "{grouped}"),  # a lost sign of percentage, beside a number
    ],
)
def test_an_ambiguous_style_would_be_noticed(
    kind: str, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STYLES, kind, (*STYLES[kind], template))
    assert ambiguous_texts()


def test_each_kind_has_at_least_eight_styles_that_differ_on_one_value() -> None:
    examples: dict[str, Value] = {
        "date": date(2021, 3, 5),
        "clock": time(15, 5),
        "seconds": time(9, 5, 9),
        "decimal": Decimal("1234.5"),
        "currency": Money("USD", Decimal("1234.5")),
        "percentage": Percentage(Decimal("12.5")),
    }
    assert set(examples) == set(STYLES) == {kind.name for kind in KINDS}
    for kind, value in examples.items():
        texts = {write_english(template, value) for template in STYLES[kind]}
        assert len(texts) >= 8, kind
    assert len({write_english(template, examples["date"]) for template in STYLES["date"]}) == 24


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (
            date(2021, 3, 5),
            [
                "March 5, 2021",
                "5 Mar 2021",
                "March 5th, 2021",
                "the 5th of March 2021",
                "3/5/2021",
                "03/05/2021",
                "2021-03-05",
                "Friday, March 5, 2021",
                "Fri, 05 Mar 2021",
                "Friday the 5th of March 2021",
            ],
        ),
        (date(1952, 5, 22), ["May 22, 1952", "22nd May 1952", "22-May-1952", "Thu 1952-05-22"]),
        (date(2099, 9, 11), ["Sep. 11, 2099", "11th of September, 2099", "2099/09/11"]),
        (time(15, 5), ["15:05", "1505 hours", "3:05 PM", "3:05 p.m.", "3.05 pm", "5 past 3 pm", "15h05"]),
        (time(0, 30), ["00:30", "0:30", "12:30 AM", "12:30am", "half past 12 am"]),
        (time(12, 15), ["12:15 PM", "a quarter past 12 pm"]),
        (time(9, 0), ["09:00", "9:00", "9 am"]),
        (time(21, 45), ["9:45 pm"]),
        (time(15, 5, 1), ["15:05:01", "15h05m01s", "3:05 PM and 1 second", "1 second past 3:05 pm"]),
        (
            Decimal("-1234.5"),
            ["-1,234.5", "minus 1234.5", "(1 234.5)", "negative 1,234 point 5", "\u22121,234.5"],
        ),
        (Decimal("1234567"), ["1,234,567", "1 234 567", "+1,234,567", "plus 1,234,567"]),
        (Decimal(9999), ["9,999", "9 999", "9999", "plus 9999"]),
        (
            Money("USD", Decimal("1234.5")),
            ["$1,234.50", "USD 1,234.50", "1,234.50 US dollars", "+$1234.50", "1,234.50 USD"],
        ),
        (Money("USD", Decimal(1)), ["$1", "$1.00", "1 US dollar", "1.00 US dollars"]),
        (Money("JPY", Decimal(-1234)), ["-¥1,234", "JPY -1,234", "minus 1,234 Japanese yen", "(¥1234)"]),
        (Money("CHF", Decimal("0.05")), ["CHF0.05", "CHF 0.05", "0.05 Swiss francs"]),
        (
            Percentage(Decimal("12.5")),
            ["12.5%", "12.5 %", "12.5 percent", "12.5 per cent", "+12.5 out of 100"],
        ),
        (Percentage(Decimal("-0.75")), ["-0.75%", "(0.75%)", "minus 0.75 pct"]),
    ],
)
def test_texts_that_english_readers_expect(value: Value, texts: list[str]) -> None:
    written = {write_english(template, value) for template in STYLES[kind_of(value)]}
    assert set(texts) <= written, set(texts) - written


def test_ordinals() -> None:
    nth = [write_english("{nth}", date(2021, 1, day)) for day in range(1, 32)]
    assert [day for day in nth if not day.endswith("th")] == [
        "1st",
        "2nd",
        "3rd",
        "21st",
        "22nd",
        "23rd",
        "31st",
    ]
    assert nth[10:13] == ["11th", "12th", "13th"]
    assert [int(day[:-2]) for day in nth] == list(range(1, 32))


def test_only_four_digits_stand_ungrouped() -> None:
    for number, is_written in ((1000, True), (9999, True), (10_000, False), (1_234_567, False)):
        written = {write_english(template, Decimal(number)) for template in STYLES["decimal"]}
        assert (str(number) in written) is is_written
