"""Small pictures without a plotting library: charts, heat maps and image grids as SVG, and pages.

Everything is text: it needs no network, no fonts and no script, follows the reader's light or dark
setting, and can stand in a page (``report``) or in a file of its own (``standalone``).

>>> from weft import viz
>>> chart = viz.line_chart({"loss": [2.3, 0.9, 0.4]}, title="Training", x_label="epoch")
>>> chart.startswith("<svg") and "loss" in chart
True
"""

from __future__ import annotations

from weft.viz.charts import line_chart
from weft.viz.grids import confusion_matrix, heat_map, image_grid
from weft.viz.images import data_url, png
from weft.viz.pages import Report, standalone

__all__ = [
    "Report",
    "confusion_matrix",
    "data_url",
    "heat_map",
    "image_grid",
    "line_chart",
    "png",
    "standalone",
]
