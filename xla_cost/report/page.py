"""One self-contained web page of a result: no network, no library, no data in the markup.

The result travels as JSON in a data block in which `<`, `>` and `&` are written as escapes, so
nothing in it can end the block; the scripts only ever set text, never markup; and a content
security policy allows exactly the one script and the one style sheet by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib import resources
from typing import Any

from xla_cost.report.result_file import ResultFile
from xla_cost.report.title import title_of

#: in the order they are joined
SCRIPTS = (
    "core.js", "table.js", "bars.js", "timeline.js", "scopes.js", "roofline.js",
    "estimate.js", "search.js", "heatmap.js", "serving.js", "study.js", "generic.js", "main.js",
)  # fmt: skip
STYLES = ("report.css", "charts.css")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
script-src '{script_hash}'; style-src '{style_hash}'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This report draws itself with JavaScript, which is turned off here.</noscript>
<div id="report"></div>
<script type="application/json" id="result">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def page(result: ResultFile) -> str:
    """The HTML text of a report of `result`."""
    script = "\n".join(["'use strict';", "(() => {", *map(_asset, SCRIPTS), "})();"])
    style = "\n".join(map(_asset, STYLES))
    title = title_of(result)
    return _PAGE.format(
        title=escape(title),
        script_hash=_hash(script),
        style_hash=_hash(style),
        style=style,
        script=script,
        data=embedded({"kind": result.kind, "title": title, "data": result.data}),
    )


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: no `<`, `>`, `&`, no line separators."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _asset(name: str) -> str:
    return resources.files("xla_cost.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
