"""Draws the dashboard's panels from what a Prometheus returns for their queries; needs matplotlib.

    python3 picture.py http://127.0.0.1:9090 MINUTES dashboard.png
"""

import json, re, sys, time, urllib.parse, urllib.request
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from PIL import Image

server, minutes, output = sys.argv[1], float(sys.argv[2]), sys.argv[3]
dashboard = json.loads(Path(__file__).with_name("dashboard.json").read_text())
end = time.time()


def series(target):
    """Yields legend, times and values of each series of a query, with any job, instance and queue."""
    query = re.sub(r'"\$(job|instance|name)"', '".+"', target["expr"]).replace("$__rate_interval", "20s")
    asked = urllib.parse.urlencode({"query": query, "start": end - 60 * minutes, "end": end, "step": 2})
    with urllib.request.urlopen(f"{server}/api/v1/query_range?{asked}") as answer:
        rows = json.load(answer)["data"]["result"]
    assert rows, f"no data: {query}"
    for row in rows:
        legend = re.sub(r"{{(\w+)}}", lambda label: row["metric"].get(label[1], ""), target["legendFormat"])
        times, values = zip(*((at - end, float(value)) for at, value in row["values"]))
        yield legend, times, values


panels = dashboard["panels"]
figure, axes = plt.subplots((len(panels) + 1) // 2, 2, figsize=(13, 16))
axes = axes.flatten()
for axis, panel in zip(axes, panels):
    drawn = [one for target in panel["targets"] for one in series(target)]
    if "stacking" in panel["fieldConfig"]["defaults"]["custom"]:
        times = sorted(set().union(*(one[1] for one in drawn)))
        at = [dict(zip(one[1], one[2])) for one in drawn]
        stack = [[values.get(when, 0.0) for when in times] for values in at]
        axis.stackplot(times, stack, labels=[one[0] for one in drawn], alpha=0.6)
    else:
        for legend, times, values in drawn:
            axis.plot(times, values, label=legend, linewidth=1)
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axis.set_title(panel["title"] + {"ops": " (1/s)", "s": " (s)"}.get(unit, ""), loc="left", fontsize=10)
    axis.set_ylim(bottom=0)
    axis.tick_params(labelsize=7)
    axis.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
for axis in axes[len(panels) :]:
    axis.remove()
figure.tight_layout()
figure.savefig(output, dpi=66)
Image.open(output).convert("RGB").quantize(64).save(output, optimize=True)
