"""Charts as one page of HTML that needs no network.

Altair describes them, vl-convert brings the scripts that draw them; both come with parax[report]. Names in them are the
model's: nothing of them may end the script that they stand in.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from ..errors import UsageError

SCRIPT = "window.vegaEmbed = vegaEmbed;"  # what the bundle does besides
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 1200px; color: #222 }}
h1 {{ font-size: 1.4em }} h2 {{ font-size: 1.1em; margin-top: 2em }}
table {{ border-collapse: collapse; margin: 1em 0 }} caption {{ text-align: left; font-weight: bold }}
th, td {{ padding: 2px 12px 2px 0; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums }}
p {{ max-width: 60em }}
</style>
<script>{script}</script></head>
<body><h1>{title}</h1><p>{facts}</p>{charts}<h2>Tables</h2>{tables}
<script>
for (const [place, spec] of Object.entries({specs})) vegaEmbed("#" + place, spec, {{renderer: "svg", actions: false}});
</script></body></html>
"""


def altair() -> Any:
    """The module that describes charts.

    Raises:
        UsageError: it or vl-convert is missing.
    """
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise UsageError("a page needs altair and vl-convert", found=error, hint="pip install 'parax[report]'; "
                         "a .json file needs neither") from error  # fmt: skip
    return altair


def page_of_charts(title: str, facts: str, charts: Sequence[tuple[str, str, Any]], tables: str) -> str:
    """The page.

    Args:
        charts: title, explanation and chart of each. tables: as HTML, which stands behind them.
    """
    import vl_convert

    specs = {f"chart{i}": chart.to_dict() for i, (_, _, chart) in enumerate(charts)}
    drawn = "".join(f'<h2>{escape(name)}</h2><p>{escape(text)}</p><div id="chart{i}"></div>'
                    for i, (name, text, _) in enumerate(charts))  # fmt: skip
    return _PAGE.format(
        title=escape(title), facts=escape(facts), charts=drawn, tables=tables,
        script=vl_convert.javascript_bundle(SCRIPT), specs=json.dumps(specs).replace("<", "\\u003c"),
    )  # fmt: skip


def error_chart(title: str, points: Sequence[dict[str, Any]]) -> str:
    """Relative error by layer on a logarithmic scale, as SVG.

    Args:
        points: number, layer, node, relative, departs of each; what is exact or infinite stands on the edge.

    Raises:
        UsageError: altair or vl-convert is missing.
    """
    alt = altair()
    import vl_convert

    finite = [p["relative"] for p in points if 0 < p["relative"] < float("inf")]
    low, high = min(finite, default=1e-9) / 2, max(finite, default=1.0) * 2
    shown = [{**p, "relative": min(max(p["relative"], low), high),
              "result": "departs" if p["departs"] else "same"} for p in points]  # fmt: skip
    colour = alt.Color("result:N", scale=alt.Scale(domain=["same", "departs"], range=["#4c78a8", "#e45756"]))
    chart = alt.Chart(alt.Data(values=shown), title=title).mark_point(filled=True).encode(
        x=alt.X("number:Q", title="layer, in the model's order"),
        y=alt.Y("relative:Q", scale=alt.Scale(type="log", domain=[low, high]), title="max |Δ| per max |reference|"),
        color=colour, tooltip=["layer:N", "node:N", "relative:Q"],
    )  # fmt: skip
    chart = chart.properties(width=900, height=320, background="white")
    return str(vl_convert.vegalite_to_svg(chart.to_dict())) + "\n"
