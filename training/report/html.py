"""Pieces of a page: tables, key figures, numbers as they are read."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def number(value: object, digits: int = 4) -> str:
    """A figure as the report writes it; None is a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]], marks: Sequence[str] = ()) -> str:
    """A table whose figures stand right; `marks` are classes of its rows."""
    right = [bool(rows) and all(isinstance(row[n], int | float | None) for row in rows) for n in range(len(head))]
    kind = [' class="n"' if one else "" for one in right]
    top = "".join(f'<th scope="col"{k}>{escape(name)}</th>' for name, k in zip(head, kind, strict=True))
    body = []
    for place, row in enumerate(rows):
        mark = f' class="{marks[place]}"' if marks and marks[place] else ""
        cells = "".join(f"<td{k}>{escape(number(cell))}</td>" for cell, k in zip(row, kind, strict=True))
        body.append(f"<tr{mark}>{cells}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def key_figures(figures: Sequence[tuple[str, object]]) -> str:
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(number(value))}</dd></div>" for name, value in figures)
    return f'<dl class="figures">{items}</dl>'


def section(name: str, title: str, *parts: str) -> str:
    heading = f'<h2 id="{name}-title">{escape(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{"".join(parts)}</section>'


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
