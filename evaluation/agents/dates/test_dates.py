import unittest
from datetime import date

from dates import parse


class Dates(unittest.TestCase):
    def test_iso(self):
        self.assertEqual(parse("2026-11-26"), date(2026, 11, 26))

    def test_day_first(self):
        self.assertEqual(parse("26.11.2026"), date(2026, 11, 26))

    def test_no_date(self):
        with self.assertRaises(ValueError):
            parse("tomorrow")


if __name__ == "__main__":
    unittest.main()
