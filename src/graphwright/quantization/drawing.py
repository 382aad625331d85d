"""A picture of what each layer loses: a bar a layer, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Bar = tuple[str, str, "float | None"]  # what it is of, the kind, and how long it is: None for no bar

_ROW, _FONT, _TOP, _SCALE = 15, 11, 58, 8  # pixels; the last: of a decibel
_COLORS = {"static": "#3b6fb6", "dynamic": "#2f9e77", "weight": "#b5792a", "float": "#8a8f98"}
_INK, _GRID, _PAPER = "#24292f", "#d8dce2", "#ffffff"


def bars_as_svg(bars: Sequence[Bar], title: str) -> str:
    """Draw the signal to noise ratio in dB of each layer, in their order, as the text of an SVG file.

    >>> picture = bars_as_svg([("conv1", "static", 42.5), ("head", "float", None)], "a network")
    >>> picture.startswith("<svg"), picture.count("<rect"), "42.5" in picture
    (True, 4, True)
    """
    left = 16 + max([len(name) for name, *_ in bars], default=0) * _FONT * 6 // 10
    most = max([length for *_, length in bars if length is not None], default=0.0)
    ticks = range(0, int(most) + 11, 10)
    width, bottom = left + ticks[-1] * _SCALE + 50, _TOP + len(bars) * _ROW + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 10}" '
        f'viewBox="0 0 {width} {bottom + 10}" font-family="sans-serif" font-size="{_FONT}" fill="{_INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{bottom + 10}" fill="{_PAPER}"/>',
        f'<text x="8" y="18" font-size="14">{escape(title)}</text>',
        *_legend(bars),
        *[_tick(left + each * _SCALE, bottom, each) for each in ticks],
        *[line for i, bar in enumerate(bars) for line in _row(bar, left, _TOP + i * _ROW)],
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _legend(bars: Sequence[Bar]) -> list[str]:
    """The kinds that there are, with their colours."""
    there = {kind for _, kind, _ in bars}
    parts, x = [], 8
    for kind in [each for each in _COLORS if each in there]:
        parts.append(f'<rect x="{x}" y="28" width="10" height="10" fill="{_COLORS[kind]}"/>')
        parts.append(f'<text x="{x + 14}" y="37">{kind}</text>')
        x += 70
    return parts


def _tick(x: int, bottom: int, decibels: int) -> str:
    line = f'<path d="M{x} {_TOP - 4}V{bottom}" stroke="{_GRID}"/>'
    return f'{line}<text x="{x}" y="{_TOP - 8}" text-anchor="middle">{decibels} dB</text>'


def _row(bar: Bar, left: int, top: int) -> list[str]:
    name, kind, length = bar
    label = f'<text x="{left - 6}" y="{top + 10}" text-anchor="end">{escape(name)}</text>'
    if length is None:
        return [label, f'<text x="{left + 4}" y="{top + 10}" fill="{_COLORS["float"]}">float</text>']
    wide = round(max(length, 0.0) * _SCALE, 1)
    return [
        label,
        f'<rect x="{left}" y="{top + 2}" width="{wide}" height="{_ROW - 4}" fill="{_COLORS[kind]}"/>',
        f'<text x="{left + wide + 4:.1f}" y="{top + 10}">{length:.1f}</text>',
    ]
