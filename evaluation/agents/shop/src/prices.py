"""What a cart costs, in cents."""

import settings


def total(lines, voucher=None):
    cents = sum(settings.price(article) * quantity for article, quantity in lines.items())
    if voucher is not None:
        cents -= discount(cents, voucher)
    return cents + shipping(cents)


def discount(cents, voucher):
    # A voucher never pays for more than half.
    return min(voucher.cents, cents // 2)


def shipping(cents):
    return 0 if cents >= settings.get("shipping.free_from", 5000) else 490
