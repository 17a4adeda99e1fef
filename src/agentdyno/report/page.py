"""The pages' common ground: one HTML file each, style and script within, every text escaped, no outside address."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from agentdyno.report.comparison_words import DASH, capitalized, interval, number, percent, within


def page(template: str, **content: Any) -> str:
    """Fill in a template; what is missing in `content` is an error and not an empty place."""
    return _environment().get_template(template).render(**content)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agentdyno.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # No text in the data can end the script element; NaN and the infinities, which JSON does not have, are an error.
    strict = partial(json.dumps, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    environment.filters |= {
        "number": number,
        "percent": percent,
        "capitalize_first": capitalized,
        "script_data": lambda data: htmlsafe_json_dumps(data, dumps=strict),
        "at": lambda share: f"{share * 100:.2f}%",
    }
    environment.globals |= {"DASH": DASH, "interval": interval, "within": within, "asset": _asset}
    return environment


def _asset(name: str) -> Markup:
    """A file that stands in the page as it is: our own style sheet and script."""
    loader = _environment().loader
    assert loader is not None
    return Markup(loader.get_source(_environment(), name)[0])
