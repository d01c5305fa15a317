"""Requests that there is no time for, turned away before there is a task for them."""

import asyncio
import json

from tests.service.desk import ask, desk


def test_who_is_turned_away_is_told_when_to_come_back_and_is_counted():
    async def main():
        async with desk(budget_ms=50) as here:
            here.versions.workload.take(2.5)
            reply = here.endpoint.turn_away({b"x-request-id": b"mine"})
            return reply, here.counts()

    reply, counts = asyncio.run(main())
    headers = dict(reply.headers)
    assert reply.status == 429
    assert int(headers[b"retry-after"]) >= 2
    assert headers[b"x-request-id"] == b"mine"
    assert "time" in json.loads(reply.body)["detail"]
    assert counts["requests_total 429 none"] == 1
    assert counts["rejected_total queue_full"] == 1


def test_nobody_is_turned_away_where_there_is_time():
    async def main():
        async with desk(budget_ms=50) as here:
            return here.endpoint.turn_away({})

    assert asyncio.run(main()) is None


def test_a_body_that_came_late_is_refused_before_it_is_parsed():
    async def main():
        async with desk(budget_ms=50) as here:
            here.versions.workload.take(2.5)
            return await here.post(b"{not json")

    assert asyncio.run(main()).status == 429
    assert ask(b"{not json").status == 400
