"""`ETag` and `If-Match` of the split: the epoch as a strong tag (RFC 9110, 8.8.3 and 13.1.1)."""

from __future__ import annotations

import re

_TAG = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*(?:,|$)')


def etag(epoch: int) -> str:
    """The tag of an epoch."""
    return f'"{epoch}"'


def match_epochs(header: str | None) -> frozenset[int] | None:
    """The epochs that an `If-Match` names; None where any will do (no header, or `*`).

    Compared strongly: a weak tag matches nothing. What is no list of tags matches nothing either, so that a change is
    refused rather than made blindly.
    """
    if header is None or header.strip() == "*":
        return None
    epochs: set[int] = set()
    at = 0
    while at < len(header):
        found = _TAG.match(header, at)
        if found is None:
            return frozenset()
        weak, tag = found.groups()
        if not weak and re.fullmatch("0|[1-9][0-9]{0,18}", tag):
            epochs.add(int(tag))
        at = found.end()
    return frozenset(epochs)
