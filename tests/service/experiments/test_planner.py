"""Plans on a real store with a fake clock: several planners, one action, every step in the history."""

import asyncio
import time
from dataclasses import dataclass

import pytest

from service import changes
from service.changes import Conflict, Proposal, Terms, Unknown
from service.experiments.course import begin, course_of, stop
from service.experiments.guardrails import Guardrails, Heard
from service.experiments.planner import Planner
from service.experiments.plans import Plan, Promote, Step
from service.experiments.watch import Watch
from service.state import Document, StateStore, VersionState, Worker
from service.state.plans import SLOT_SECONDS, arm_counts, read_plan

PLAN = Plan("v2", (Step(0.1, 60), Step(0.5, 60), Step(1.0, 60)), Guardrails(True, 50.0, 0.05))
TERMS = Terms({"v1", "v2"})


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@dataclass
class View:
    """The control plane of one worker, on the store alone."""

    store: StateStore
    document: Document

    async def change(self, edit):
        with self.store.transaction() as change:
            return edit(change)

    async def read(self, view):
        with self.store.reading() as reading:
            return view(reading)

    def apply(self, document):
        self.document = document


class Table:
    """Workers with a planner each, and what they count and hear."""

    def __init__(self, store, workers=1):
        self.store, self.clock, self.heard = store, Clock(), Heard((0.0, 0.1), "ok")
        self.watches = [Watch(clock=self.clock) for _ in range(workers)]
        self.views = [View(store, store.document()) for _ in range(workers)]
        self.planners = [
            Planner(view, watch, hear=self.hear, clock=self.clock)
            for view, watch in zip(self.views, self.watches, strict=True)
        ]

    async def hear(self, experiment, version):
        return self.heard

    def begin(self, plan=PLAN, experiment="default", terms=TERMS):
        with self.store.transaction() as change:
            return begin(change, experiment, plan, terms, self.clock())

    def look(self, seconds=0.0):
        self.clock.now += seconds
        for planner in self.planners:
            asyncio.run(planner.look())

    def serve(self, version, requests, *, errors=0, seconds=0.01, worker=0):
        epoch = self.store.document().epoch
        for n in range(requests):
            self.watches[worker]("default", epoch, version, "split", 500 if n < errors else 200, seconds)

    def course(self):
        with self.store.reading() as view:
            return course_of(read_plan(view, "default"))

    def history(self):
        with self.store.reading() as view:
            return [(row.who, row.traffic["coverage"], row.traffic["weights"]) for row in view.history()]

    def change(self, weights, **more):
        with self.store.transaction() as change:
            return changes.put_weights(change, Proposal(weights, **more), TERMS)


@pytest.fixture(name="store")
def _store(any_state):
    """v1 has 90 and v2 10, at epoch 1."""
    with StateStore.open(any_state) as store:
        with store.transaction() as change:
            changes.start(change, ["v1", "v2"], {"v1": 90, "v2": 10})
        ready = {"v1": VersionState("ready"), "v2": VersionState("ready")}
        store.tell(Worker("here", "w0", 1, True, 1, 1, 0.0, time.time(), ready))
        yield store


@pytest.fixture(name="table")
def _table(store):
    table = Table(store, workers=2)
    table.begin()
    table.look()
    return table


def test_a_plan_begins_with_its_first_step_and_says_who(table):
    assert table.history()[0] == ("plan", 0.1, {"v1": 90, "v2": 10})


def test_its_steps_raise_the_coverage_with_the_split_inside_fixed(table):
    for _ in range(2):
        table.serve("v2", 20)
        table.look(30)
        table.look(31)
    assert [row[:2] for row in table.history()[:3]] == [("plan", 1.0), ("plan", 0.5), ("plan", 0.1)]
    assert {tuple(row[2].items()) for row in table.history()} == {(("v1", 90), ("v2", 10))}


def test_it_holds_where_nothing_was_served(table):
    table.look(1000)
    assert (table.course().state, table.store.document().coverage) == ("holding", 0.1)


def test_requests_of_an_earlier_step_are_no_evidence_for_this_one(table):
    table.serve("v2", 500)
    table.look(30)
    table.look(31)
    table.look(1000)
    assert (table.course().step, table.course().state) == (1, "holding")


def test_errors_counted_by_two_workers_take_the_weight_once(table):
    table.serve("v1", 900, errors=15)
    table.serve("v2", 100, errors=12, worker=1)
    table.look(1)
    table.look(1)
    whos = [(who, weights) for who, _, weights in table.history()]
    assert whos == [("plan", {"v1": 90}), ("plan", {"v1": 90, "v2": 10}), ("start", {"v1": 90, "v2": 10})]
    assert table.course().state == "rolled_back"
    assert "errors" in table.course().why


def test_the_history_says_why(table):
    table.serve("v2", 100, errors=60)
    table.look(1)
    with table.store.reading() as view:
        assert "guardrail errors" in view.history(1)[0].traffic["comment"]


def test_slow_answers_take_the_weight(table):
    table.serve("v2", 200, seconds=0.065)
    table.look(1)
    assert (table.course().state, table.store.document().weights) == ("rolled_back", {"v1": 90})


def test_slow_answers_of_long_ago_do_not_count(table):
    table.serve("v2", 90, seconds=0.065)
    table.look(1)
    table.serve("v2", 90, seconds=0.01)
    table.look(90)
    assert table.course().active


def test_where_no_weight_is_left_the_default_gets_it(store):
    table = Table(store)
    table.change({"v2": 1, "v1": 0})
    with table.store.transaction() as change:
        assert changes.take_off(change, "v2", TERMS, "").new.weights == {"v1": 1}


def test_a_loss_of_ctr_takes_the_weight(table):
    table.heard = Heard((-0.3, -0.1), "ok")
    table.look(1)
    assert table.course().state == "rolled_back"


def test_a_plan_that_is_over_does_nothing_more(table):
    table.heard = Heard((-0.3, -0.1), "ok")
    table.look(1)
    table.change({"v1": 90, "v2": 10})
    table.look(1000)
    assert table.store.document().weights == {"v1": 90, "v2": 10}


def test_it_is_promoted_to_the_default_with_all_the_weight(store):
    table = Table(store)
    table.begin(Plan("v2", (Step(1.0, 60),), promote=Promote(100, 0.02)))
    table.look()
    table.serve("v2", 20)
    table.look(61)
    assert table.course().state == "watching"
    table.look(40)
    document = table.store.document()
    assert (document.default, document.weights, table.course().state) == ("v2", {"v2": 1}, "promoted")
    assert table.history()[0][0] == "plan"


def test_a_stopped_plan_leaves_the_split_as_it_is(table):
    with table.store.transaction() as change:
        stop(change, "default", "admin")
    table.serve("v2", 100)
    table.look(1000)
    assert (table.course().state, table.store.document().coverage) == ("stopped", 0.1)


@pytest.mark.parametrize("change", [{"coverage": 0.7}, {"default": "v2"}, {"experiment": "other"}])
def test_a_split_changed_by_an_operator_ends_the_plan(table, change):
    table.change({"v1": 90, "v2": 10}, **change)
    table.look(1)
    assert table.course().state == "stopped"
    assert "admin" in table.course().why


def test_a_shadow_set_by_an_operator_does_not(table):
    table.change({"v1": 90, "v2": 10}, comment="x", shadow={"version": "v2", "fraction": 0.1})
    table.look(1)
    assert table.course().active


def test_another_split_inside_starts_the_evidence_anew(table):
    table.serve("v2", 100, errors=1)
    table.look(1)
    table.change({"v1": 50, "v2": 50})
    table.look(1)
    table.serve("v1", 100, errors=8)
    table.look(1)
    assert (table.course().active, table.course().counted_from) == (True, 3)


def test_a_dead_holder_is_followed_by_another_after_its_lease(table):
    table.serve("v2", 20)
    table.look(1)
    del table.planners[0]
    table.look(61)
    assert table.course().step == 1


def test_while_the_lease_is_held_the_others_stay_away(table):
    table.heard = Heard((-0.3, -0.1), "ok")
    asyncio.run(table.planners[1].look())
    assert table.course().active


def test_the_counts_of_a_long_plan_stay_few(table):
    for _ in range(40):
        table.serve("v2", 5)
        table.look(SLOT_SECONDS)
    with table.store.reading() as view:
        rows = list(view.connection.execute(arm_counts.select()))
    assert len(rows) < 40
    assert sum(row.requests for row in rows) == 200


@pytest.mark.parametrize(
    ("experiment", "version", "error"),
    [("other", "v2", Unknown), ("default", "v9", Unknown), ("default", "v1", Conflict)],
)
def test_what_cannot_be_ramped_is_refused(store, experiment, version, error):
    with pytest.raises(error):
        Table(store).begin(Plan(version, (Step(0.1, 60),)), experiment)


def test_a_version_without_weight_is_refused(store):
    table = Table(store)
    table.change({"v1": 1})
    with pytest.raises(Conflict, match="no weight"):
        table.begin()


def test_a_version_with_all_the_weight_is_refused(store):
    table = Table(store)
    table.change({"v2": 1})
    with pytest.raises(Conflict, match="all the weight"):
        table.begin()
