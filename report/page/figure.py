"""Draws a figure of a sweep for a paper. Usage: figure.py DATA.json FIGURE.(png|svg|pdf); exit 3 without matplotlib

DATA: {x: {name, unit}, y: {name, unit}, values: [x as text], numbers: [x] or null, series: [{label, y: [number or null]}]}
y may have log: true, a series may have measured: [number or null], drawn as crosses.
"""
import json
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker
except ImportError:
    sys.exit(3)

MARKERS = "osD^v<>Pp*hX"


def engineering(axis, unit, digits=6):
    """Numbers with the prefix of a unit; without a unit, small ones as they are: 0.4, not 400m."""
    numbers = ticker.EngFormatter(unit, sep=" " if unit else "")
    axis.set_major_formatter(ticker.FuncFormatter(
        lambda value, at: f"{value:g}" if not unit and abs(value) < 1 else numbers(float(f"{value:.{digits}g}"), at)))


def draw(data, out):
    # Text stays text, and the same data make the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "csdsim", "pdf.fonttype": 42, "font.size": 8,
                                "axes.grid": True, "grid.alpha": 0.3, "legend.frameon": False})
    figure, axes = pyplot.subplots(figsize=(3.5, 2.4), constrained_layout=True)
    series, values, numbers = data["series"], data["values"], data["numbers"]
    if numbers:
        for i, one in enumerate(series):
            points = [(x, y) for x, y in zip(numbers, one["y"]) if y is not None]
            line, = axes.plot(*zip(*points), marker=MARKERS[i % len(MARKERS)], markersize=3.5, linewidth=1.2, label=one["label"])
            measured = [(x, y) for x, y in zip(numbers, one.get("measured", [])) if y is not None]
            if measured:
                axes.plot(*zip(*measured), "x", color=line.get_color(), markersize=7)
        if min(numbers) > 0 and max(numbers) / min(numbers) >= 8:
            axes.set_xscale("log", base=2)
        axes.set_xticks(numbers if len(numbers) <= 8 else numbers[::len(numbers) // 8 + 1])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        engineering(axes.xaxis, data["x"]["unit"], 6 if len(numbers) <= 8 else 3)  # long labels overlap
    else:
        width = 0.8 / len(series)
        for i, one in enumerate(series):
            axes.bar([v + (i - (len(series) - 1) / 2) * width for v in range(len(values))], [y or 0 for y in one["y"]], width,
                     label=one["label"])
        axes.set_xticks(range(len(values)), values, rotation=20 if len(values) * max(map(len, values)) > 36 else 0)
    if data["y"].get("log"):
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.05 * axes.dataLim.ymax or 1)
    engineering(axes.yaxis, "")
    axes.set_xlabel(data["x"]["name"])
    axes.set_ylabel(data["y"]["name"] + (f" ({data['y']['unit']})" if data["y"]["unit"] else ""))
    if any("measured" in one for one in series):
        axes.plot([], [], "kx", markersize=7, label="measured")
    if len(axes.get_legend_handles_labels()[0]) > 1:
        # Bars leave no room inside.
        axes.legend(fontsize=6, **({} if numbers else {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3}))
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    figure.savefig(out, dpi=300, metadata=dates.get(out.rsplit(".", 1)[-1]))


with open(sys.argv[1], encoding="utf-8") as file:
    contents = json.load(file)
try:
    draw(contents, sys.argv[2])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
