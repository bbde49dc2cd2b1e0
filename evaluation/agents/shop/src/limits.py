"""How much one customer may buy of one article."""

import settings

DEFAULT_LIMIT = 10
RESELLER_FACTOR = 5


class TooMany(Exception):
    pass


def limit_of(customer, article):
    limit = settings.get("limits." + article, DEFAULT_LIMIT)
    if customer.is_reseller:
        return limit * RESELLER_FACTOR
    return limit


def check_quantity(customer, article, quantity):
    if quantity > limit_of(customer, article):
        raise TooMany(article)
