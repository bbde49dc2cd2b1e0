"""Reads dates in several forms."""

from datetime import datetime

FORMS = ("%Y-%m-%d", "%d.%m.%Y", "%d %b %Y", "%Y-%j")


def parse(text):
    """The date that a text says. Raises ValueError."""
    for form in FORMS:
        try:
            return datetime.strptime(text.strip(), form).date()
        except ValueError:
            continue
    raise ValueError(f"{text!r} is no date")
