"""What every change has in common: who makes it, its body, and which document it is meant for."""

from __future__ import annotations

import asyncio

from fastapi import Request

from service.api.auth import check_admin
from service.api.body import BodyLimits, ClientGone, read_json
from service.api.parts import parts_of
from service.api.proposal import read_body
from service.api.tags import match_epochs
from service.changes import Terms
from service.errors import NotJson
from service.scoring.artifact import version_names

BODY = BodyLimits(size=2**20, seconds=20.0)


def admin_of(request: Request) -> str:
    """Who makes the change; raises as `check_admin`."""
    parts, headers = parts_of(request), request.headers
    return check_admin(parts["settings"], parts["metrics"], headers.get("authorization"), headers.get("origin"))


async def body_of(request: Request) -> object:
    """The decoded body. Raises NotJson, TooLarge, SlowBody."""
    try:
        body = await read_json(dict(request.scope["headers"]), request.receive, BODY, asyncio.get_running_loop())
    except ClientGone:
        raise NotJson("the client left before its body was whole") from None
    return read_body(body)


async def terms_of(request: Request, who: str, *, dry_run: bool = False) -> Terms:
    """The versions on disk, and the epochs of `If-Match`."""
    header = ",".join(request.headers.getlist("if-match")) if "if-match" in request.headers else None
    known = await asyncio.to_thread(version_names, parts_of(request)["settings"].artifacts)
    return Terms(known=known, epochs=match_epochs(header), who=who, dry_run=dry_run)
