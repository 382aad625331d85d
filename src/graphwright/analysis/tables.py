"""Tables that people read: as plain text, and drawn by rich where they are printed with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphwright.analysis.report import format_columns


class Table:
    """Titles, rows of text, and lines under them. `str` aligns the columns; rich draws it where it prints it.

    >>> print(Table(("name", "flops"), [("a", "1,000"), ("long name", "2")], ("2 rows",)))
    name       flops
    a          1,000
    long name      2
    2 rows
    """

    def __init__(self, titles: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
        self.titles, self.rows, self.notes = titles, rows, notes

    def is_number(self, column: int) -> bool:
        """Tell whether a column has numbers, which are aligned at the right."""
        return all(row[column][:1] in "-+.0123456789" for row in self.rows)

    def __str__(self) -> str:
        cells = [self.titles, *self.rows]
        aligned = [[*row] for row in cells]
        for column in filter(self.is_number, range(len(self.titles))):
            width = max(len(row[column]) for row in cells)
            for row in aligned:
                row[column] = row[column].rjust(width)
        return "\n".join([*format_columns(aligned[0], aligned[1:]), *self.notes])

    def __rich__(self) -> Any:
        """What rich prints in place of this."""
        import rich.console
        import rich.table
        import rich.text

        table = rich.table.Table(box=None, header_style="bold", pad_edge=False)
        for column, title in enumerate(self.titles):
            table.add_column(title, justify="right" if self.is_number(column) else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*map(rich.text.Text, row))
        return rich.console.Group(table, *map(rich.text.Text, self.notes))


def number_as_text(number: float, unit: str = "") -> str:
    """Write a large number in three digits.

    >>> number_as_text(68096), number_as_text(12), number_as_text(3.2e9, "FLOP")
    ('68.1 k', '12', '3.2 GFLOP')
    """
    return _scaled(number, 1000, unit, ("", "k", "M", "G", "T", "P"))


def bytes_as_text(count: float) -> str:
    """Write a number of bytes.

    >>> bytes_as_text(512), bytes_as_text(30760), bytes_as_text(-2**21)
    ('512 B', '30 KiB', '-2 MiB')
    """
    return _scaled(count, 1024, "B", ("", "Ki", "Mi", "Gi", "Ti"))


def _scaled(number: float, base: int, unit: str, prefixes: Sequence[str]) -> str:
    size, power = float(number), 0
    while abs(size) >= base and power < len(prefixes) - 1:
        size, power = size / base, power + 1
    return f"{size:.3g} {prefixes[power]}{unit}".rstrip()
