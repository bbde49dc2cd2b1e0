"""Reads config/settings.toml once."""

import tomllib

with open("config/settings.toml", "rb") as file:
    _SETTINGS = tomllib.load(file)


def get(path, default):
    value = _SETTINGS
    for part in path.split("."):
        if part not in value:
            return default
        value = value[part]
    return value


def price(article):
    return _SETTINGS["prices"][article]
