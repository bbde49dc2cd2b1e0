"""Carts: what a customer is about to buy."""

from limits import check_quantity
from prices import total


class Cart:
    def __init__(self, customer):
        self.customer = customer
        self.lines = {}

    def add(self, article, quantity):
        """Adds to what is there; the sum is what is checked."""
        wanted = self.lines.get(article, 0) + quantity
        check_quantity(self.customer, article, wanted)
        self.lines[article] = wanted

    def remove(self, article):
        self.lines.pop(article, None)

    def checkout(self, voucher=None):
        return total(self.lines, voucher)
