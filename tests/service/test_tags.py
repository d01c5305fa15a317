"""ETags of epochs and what an If-Match means."""

import pytest

from service.api.tags import etag, match_epochs


def test_the_tag_of_an_epoch_is_strong():
    assert etag(7) == '"7"'


@pytest.mark.parametrize("header", [None, "*", " * "])
def test_no_condition_and_the_star_let_any_epoch_through(header):
    assert match_epochs(header) is None


@pytest.mark.parametrize(
    ("header", "epochs"),
    [
        ('"7"', {7}),
        ('"7", "8"', {7, 8}),
        ('"7","8" ,"9"', {7, 8, 9}),
        ('W/"7"', set()),
        ('W/"7", "8"', {8}),
        ('"a,b", "8"', {8}),
        ('"07"', set()),
        ("7", set()),
        ('"7" "8"', set()),
        ('"7', set()),
        ("", set()),
        ('"7", *', set()),
        ('"' + "9" * 40 + '"', set()),
    ],
)
def test_a_list_of_tags_is_compared_strongly(header, epochs):
    assert match_epochs(header) == epochs
