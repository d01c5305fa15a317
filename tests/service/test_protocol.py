"""What of a connection's bytes may go past the parser: one whole usual request, and nothing else."""

import pytest

from service.workers.usual import usual_request

HEAD = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"


def with_header(line: bytes) -> bytes:
    return HEAD.replace(b"Host: a\r\n", b"Host: a\r\n" + line + b"\r\n") + b"{}"


def test_a_whole_request_is_usual():
    headers = {b"host": b"a", b"content-type": b"application/json", b"content-length": b"2"}
    assert usual_request(HEAD + b"{}") == (headers, b"{}")


@pytest.mark.parametrize("line", [b"X-Request-Id:\t r-1 ", b"Connection: Keep-Alive"])
def test_headers_are_named_in_lower_case_and_stripped(line):
    name, _, value = line.partition(b":")
    found = usual_request(with_header(line))
    assert found is not None
    assert found[0][name.lower()] == value.strip()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD,
        HEAD + b"{",
        HEAD + b"{}{",
        HEAD + b"{}" + HEAD,
        HEAD.replace(b"POST", b"GET") + b"{}",
        HEAD.replace(b"/predict", b"/predict?x=1") + b"{}",
        HEAD.replace(b"/predict", b"/models") + b"{}",
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"{}",
        HEAD.replace(b"\r\n", b"\n") + b"{}",
        HEAD.replace(b"Content-Length: 2\r\n", b"") + b"{}",
        HEAD.replace(b"Content-Length: 2", b"Content-Length: +2") + b"{}",
        HEAD.replace(b"Content-Length: 2", b"Content-Length: 2, 2") + b"{}",
        HEAD.replace(b"Content-Length: 2", b"Content-Length : 2") + b"{}",
        with_header(b"Content-Length: 2"),
        with_header(b"content-length: 9"),
        with_header(b"Transfer-Encoding: chunked"),
        with_header(b"Connection: close"),
        with_header(b"Connection: keep-alive, upgrade"),
        with_header(b"X-Unit-Id: a\r\nx-unit-id: b"),
        with_header(b"Expect: 100-continue"),
        with_header(b"Upgrade: h2c"),
        with_header(b"X-Bad: \x00"),
        with_header(b"X(bad): 1"),
        with_header(b"X,bad: 1"),
        with_header(b" folded: line"),
    ],
)
def test_all_else_is_for_the_parser(data):
    assert usual_request(data) is None


def test_a_head_that_is_known_says_nothing_of_the_next_body():
    assert usual_request(HEAD + b"{}") is not None
    assert usual_request(HEAD + b"[]")[1] == b"[]"
    assert usual_request(HEAD + b"{ }") is None


def test_a_head_too_long_to_be_remembered_is_read_as_well():
    found = usual_request(with_header(b"X-Long: " + b"a" * 2000))
    assert found is not None
    assert len(found[0][b"x-long"]) == 2000
