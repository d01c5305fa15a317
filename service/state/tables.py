"""The tables, in any database."""

from __future__ import annotations

import sqlalchemy as sa

FORMAT = 1

metadata = sa.MetaData()

# One row: what all workers follow.
document = sa.Table(
    "document",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
)

# One row an epoch. `undo` is the epoch whose traffic an undo of this one restores.
history = sa.Table(
    "history",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("who", sa.String(200), nullable=False),
    sa.Column("traffic", sa.JSON, nullable=False),
    sa.Column("undo", sa.BigInteger),
)

# One row a living worker.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("replica", sa.String(100), primary_key=True),
    sa.Column("worker", sa.String(100), primary_key=True),
    sa.Column("pid", sa.BigInteger, nullable=False),
    sa.Column("accepting", sa.Boolean, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("since", sa.Double, nullable=False),
    sa.Column("seen", sa.Double, nullable=False),
    sa.Column("states", sa.JSON, nullable=False),
)

# What signs prediction ids: the newest two are good, see `service/experiments/keys.py`.
signing_keys = sa.Table(
    "signing_keys",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("secret", sa.LargeBinary, nullable=False),
)

# One row an event that was counted, so that it is not counted again, lying in the order of the keys: see
# `counts.take_keys`. `received` is in whole seconds since 1970.
event_keys = sa.Table(
    "event_keys",
    metadata,
    sa.Column("key", sa.LargeBinary, primary_key=True),
    sa.Column("received", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Counts that add. `reason` is "split" for what is in the statistics; the others have sub-bucket 0.
cells = sa.Table(
    "cells",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("version", sa.String(64), primary_key=True),
    sa.Column("reason", sa.String(16), primary_key=True),
    sa.Column("sub", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("predictions", sa.BigInteger, nullable=False),
    sa.Column("errors", sa.BigInteger, nullable=False),
    sa.Column("impressions", sa.BigInteger, nullable=False),
    sa.Column("clicks", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Distinct units an arm: hashes of 64 bits, less 2^63 so that their order stands in a signed column.
units = sa.Table(
    "units",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("version", sa.String(64), primary_key=True),
    sa.Column("hash", sa.BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

# How often an epoch's sample of units was halved, and how many rows it has.
unit_samples = sa.Table(
    "unit_samples",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("halvings", sa.Integer, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
)

# Sampled answers: hashes of the items (int64) and their scores (float32), in bytes; `draw` of 32 bits thins them.
kept = sa.Table(
    "kept",
    metadata,
    sa.Column("prediction", sa.LargeBinary, primary_key=True),
    sa.Column("experiment", sa.String(64), nullable=False, index=True),
    sa.Column("version", sa.String(64), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False, index=True),
    sa.Column("draw", sa.BigInteger, nullable=False),
    sa.Column("unit", sa.BigInteger, nullable=False),
    sa.Column("weight", sa.Integer, nullable=False),
    sa.Column("items", sa.LargeBinary, nullable=False),
    sa.Column("scores", sa.LargeBinary, nullable=False),
    sa.Column("shadow_version", sa.String(64)),
    sa.Column("shadow", sa.LargeBinary),
)

# What was shown (0) and clicked (1) of sampled answers.
kept_events = sa.Table(
    "kept_events",
    metadata,
    sa.Column("prediction", sa.LargeBinary, primary_key=True),
    sa.Column("item", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.SmallInteger, primary_key=True, autoincrement=False),
    sa.Column("received", sa.BigInteger, nullable=False, index=True),
    sqlite_with_rowid=False,
)

# How often an experiment's sampled answers were halved, and what they weigh together.
kept_samples = sa.Table(
    "kept_samples",
    metadata,
    sa.Column("experiment", sa.String(64), primary_key=True),
    sa.Column("halvings", sa.Integer, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
)
