"""The filter of the trial table as people type it: `state=failed metric>=0.9 lr<=0.1 epochs>=3`."""

import re
import shlex
from collections.abc import Collection

from cluster.core.keyset import InvalidQuery
from tuning.queries.trials import COLUMNS, CONFIG

TERM = re.compile(r"(?P<name>[^<>=]+?)\s*(?P<sign><=|>=|=|<|>)\s*(?P<value>.*)")
BOUNDS = {"=": "", ">=": "__gte", "<=": "__lte"}


def filters_of(text: str, parameters: Collection[str]) -> dict[str, str]:
    """Return the filters of `filter_trials` that a text asks for.

    Terms stand apart by spaces; `name`, one of `=`, `>=`, `<=`, and a value, quoted where it has spaces.
    A name is a column or one of the study's parameters. Raises InvalidQuery with the term and the rule.
    """
    try:
        terms = shlex.split(text)
    except ValueError:
        raise InvalidQuery("filter", "has a quotation mark without its partner") from None
    filters: dict[str, str] = {}
    for term in terms:
        match = TERM.fullmatch(term)
        if match is None or not match["value"]:
            raise InvalidQuery(f"'{term}'", "is no term: write name=value, name>=value or name<=value")
        if match["sign"] in "<>":
            raise InvalidQuery(f"'{term}'", f"write {match['sign']}= (ranges include their ends)")
        key = _key(match["name"], parameters) + BOUNDS[match["sign"]]
        if key in filters:
            raise InvalidQuery(f"'{term}'", "the same bound stands there twice")
        filters[key] = match["value"]
    return filters


def _key(name: str, parameters: Collection[str]) -> str:
    if name in COLUMNS:
        return name
    if name.removeprefix(CONFIG) in parameters:
        return CONFIG + name.removeprefix(CONFIG)
    known = ", ".join([*COLUMNS, *parameters])
    raise InvalidQuery(f"'{name}'", f"is neither a column nor a parameter; there are {known}")
