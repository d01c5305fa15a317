"""The state store: one document, one order of changes, many processes."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from service.state import Document, StateError, StateStore, VersionState, Worker, tables
from service.state.workers import LIVE_SECONDS, overall, replicas


@pytest.fixture(name="url")
def _url(any_state):
    return any_state


@pytest.fixture(name="store")
def _store(url):
    store = StateStore.open(url)
    yield store
    store.close()


def traffic(weights, **more):
    return replace(Document(), weights=weights, **{"default": next(iter(weights)), **more}).traffic()


def worker(name="w0", *, replica="r1", epoch=1, accepting=True, since=0.0, seen=None, **states):
    now = time.time() if seen is None else seen
    told = {version: VersionState(*(s if isinstance(s, tuple) else (s,))) for version, s in states.items()}
    return Worker(replica, name, 1, accepting, epoch, epoch, since, now, told)


def test_an_empty_store_holds_the_empty_document(store):
    assert store.document() == Document()


def test_a_change_is_there_after_the_store_is_opened_again(store, url):
    with store.transaction() as change:
        change.put_loaded({"v1": 1, "v2": 1})
        change.put_traffic(traffic({"v1": 90, "v2": 10}, coverage=0.5, experiment="home"), who="me", undo=None)
    again = StateStore.open(url)
    document = again.document()
    again.close()
    assert (document.epoch, document.revision) == (1, 2)
    assert (document.weights, document.coverage, document.experiment) == ({"v1": 90, "v2": 10}, 0.5, "home")
    assert document.loaded == {"v1": 1, "v2": 1}


def test_a_load_is_a_new_revision_of_the_same_epoch(store):
    with store.transaction() as change:
        assert change.put_loaded({"v1": 1}).epoch == 0
    assert store.revision() == 1


def test_a_catalog_revision_is_stored_with_the_versions_to_be_loaded(store, url):
    with store.transaction() as change:
        change.put_loaded({"v1": 1, "v2": 1}, {"v1": 3, "v2": 0})
        change.put_traffic(traffic({"v1": 1}), who="me", undo=None)
    with StateStore.open(url) as again:
        document = again.document()
    assert (document.catalogs, document.catalog("v1"), document.catalog("v2")) == ({"v1": 3}, 3, 0)


def test_a_version_no_longer_to_be_loaded_has_its_catalog_revision_forgotten(store):
    with store.transaction() as change:
        change.put_loaded({"v1": 1, "v2": 1}, {"v1": 3, "v2": 2})
        assert change.put_loaded({"v1": 1}).catalogs == {"v1": 3}
        assert change.put_loaded({"v1": 1, "v2": 9}).catalogs == {"v1": 3}


def test_a_document_stored_before_there_were_catalog_revisions_has_none(store):
    with store.transaction() as change:
        old = {name: value for name, value in Document().body().items() if name != "catalogs"}
        change._connection.execute(tables.document.update().values(body=old))
    assert store.document() == Document()


def test_a_change_that_fails_half_way_leaves_nothing(store):
    def half():
        with store.transaction() as change:
            change.put_traffic(traffic({"v1": 1}), who="me", undo=None)
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        half()
    assert store.document() == Document()
    with store.reading() as view:
        assert view.history() == []


def test_the_history_tells_who_and_what_newest_first(store):
    with store.transaction() as change:
        change.put_traffic(traffic({"v1": 1}), who="start", undo=None)
        change.put_traffic(traffic({"v2": 1}, comment="try"), who="admin", undo=1)
    with store.reading() as view:
        rows = view.history()
    assert [(row.epoch, row.who, row.undo) for row in rows] == [(2, "admin", 1), (1, "start", None)]
    assert rows[0].traffic["comment"] == "try"


def test_ab04_changes_of_many_threads_have_one_order(store):
    def change(n):
        with store.transaction() as tx:
            before = tx.document().epoch
            return before, tx.put_traffic(traffic({f"v{n}": 1}), who=str(n), undo=before or None).epoch

    with ThreadPoolExecutor(8) as pool:
        pairs = list(pool.map(change, range(40)))
    assert sorted(before for before, _ in pairs) == list(range(40))
    assert all(after == before + 1 for before, after in pairs)
    assert store.document().epoch == 40


def test_changes_of_several_processes_have_one_order(store, url):
    code = (
        "import sys; from service.state import StateStore, Document; from dataclasses import replace\n"
        "s = StateStore.open(sys.argv[1])\n"
        "for n in range(15):\n"
        "    traffic = replace(Document(), weights={'v1': n + 1}, default='v1').traffic()\n"
        "    with s.transaction() as tx:\n"
        "        tx.put_traffic(traffic, who='x', undo=None)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, url]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert store.document().epoch == 45
    with store.reading() as view:
        assert len(view.history()) == 45


def test_a_reader_is_not_held_up_by_a_change(store):
    inside, done = threading.Event(), threading.Event()

    def slow():
        with store.transaction() as tx:
            tx.put_loaded({"v1": 1})
            inside.set()
            done.wait(5)

    thread = threading.Thread(target=slow)
    thread.start()
    inside.wait(5)
    begun = time.monotonic()
    seen = store.revision()
    took = time.monotonic() - begun
    done.set()
    thread.join()
    assert (seen, store.revision()) == (0, 1)
    assert took < 1


@pytest.mark.parametrize("where", ["missing/state.db", "."])
def test_a_state_that_cannot_be_written_names_the_option(tmp_path, where):
    with pytest.raises(StateError, match=r"^--state: cannot use sqlite:///"):
        StateStore.open(f"sqlite:///{tmp_path}/{where}")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://me:hush@127.0.0.1:9/db", r"cannot use postgresql://me:\*\*\*@127.0.0.1:9/db: .*refused"),
        ("postgresql://me@host:port/db", "cannot use what was given"),
        ("postgresql:///db?host=/nowhere", "cannot use postgresql:///db.*nowhere"),
    ],
)
def test_a_postgresql_that_cannot_be_reached_names_the_option_without_its_password(url, says):
    with pytest.raises(StateError, match=f"^--state: {says}") as caught:
        StateStore.open(url)
    assert "hush" not in str(caught.value)


def test_a_file_that_is_no_database_names_the_option(tmp_path):
    (tmp_path / "state.db").write_text("hello, this is no database at all" * 40)
    with pytest.raises(StateError, match=r"--state: .*not a database"):
        StateStore.open(f"sqlite:///{tmp_path}/state.db")


def test_a_worker_not_heard_of_is_not_listed(store):
    store.tell(worker("w0"))
    store.tell(worker("w1", seen=time.time() - LIVE_SECONDS - 1))
    assert [row.worker for row in store.workers()] == ["w0"]


def test_a_heartbeat_replaces_the_one_before(store):
    store.tell(worker("w0", epoch=1, v1="loading"))
    store.tell(worker("w0", epoch=2, v1=("failed", "no such file", 3)))
    (row,) = store.workers()
    assert (row.epoch, row.states["v1"]) == (2, VersionState("failed", "no such file", 3))


@pytest.mark.parametrize(
    ("state", "refuses"),
    [
        (VersionState("ready", "catalogs/3.parquet: damaged", 5, catalog=1), True),
        (VersionState("ready", None, 5, catalog=1), False),
        (VersionState("ready", "catalogs/9.parquet: damaged", 5, catalog=3), False),
        (VersionState("failed", "model.pt: damaged", 5), False),
    ],
)
def test_a_worker_refuses_a_catalog_where_it_says_why_and_goes_on_with_another(state, refuses):
    assert state.refuses(3) == refuses


def test_a_worker_or_a_whole_replica_is_forgotten(store):
    for name, replica in (("w0", "r1"), ("w1", "r1"), ("w0", "r2")):
        store.tell(worker(name, replica=replica))
    store.forget("r1", "w0")
    assert [(row.replica, row.worker) for row in store.workers()] == [("r1", "w1"), ("r2", "w0")]
    store.forget("r1")
    assert [(row.replica, row.worker) for row in store.workers()] == [("r2", "w0")]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["ready", "ready"], "ready"),
        (["ready", "loading"], "loading"),
        (["ready", "available"], "loading"),
        (["ready", "failed"], "failed"),
        (["loading", "failed"], "failed"),
        (["available", "unloading"], "unloading"),
        (["available", "available"], "available"),
        ([], "available"),
    ],
)
def test_a_version_is_ready_only_where_every_worker_has_it(states, expected):
    rows = [worker(f"w{n}", v1=state) for n, state in enumerate(states)]
    assert overall("v1", rows).state == expected


def test_a_worker_that_takes_no_connections_yet_holds_nothing_up():
    rows = [worker("w0", v1="ready"), worker("w1", accepting=False, v1="loading")]
    assert overall("v1", rows).state == "ready"


def test_a_replica_has_an_epoch_once_all_its_workers_do():
    rows = [worker("w0", epoch=3, since=10.0), worker("w1", epoch=2, since=9.0), worker("w0", replica="r2", epoch=3)]
    assert replicas(rows)["r1"] == (2, 10.0)
    assert replicas(rows)["r2"][0] == 3


def test_those_who_add_do_not_wait_for_each_other_and_a_change_not_for_them(cluster):
    with StateStore.open(cluster.state()) as store, store.adding() as one:
        assert one.counts.take_keys([b"a" * 16]) == {b"a" * 16}
        with store.adding() as other:
            assert other.counts.take_keys([b"b" * 16]) == {b"b" * 16}
        with store.transaction() as change:
            change.put_loaded({"v1": 1})
        assert store.revision() == 1


def test_an_event_that_two_add_at_once_is_new_to_one_of_them(cluster):
    with StateStore.open(cluster.state()) as store, ThreadPoolExecutor(4) as pool:

        def take(_):
            with store.adding() as change:
                return len(change.counts.take_keys([bytes([n]) * 16 for n in range(200)]))

        assert sorted(pool.map(take, range(4))) == [0, 0, 0, 200]


def test_a_view_does_not_see_what_is_changed_meanwhile(store):
    with store.reading() as view:
        assert view.revision() == 0
        with store.transaction() as change:
            change.put_loaded({"v1": 1})
        assert view.revision() == 0
    assert store.revision() == 1


def test_a_store_that_was_gone_is_used_again_once_it_is_back_and_has_what_it_had(cluster):
    with StateStore.open(cluster.state()) as store:
        with store.transaction() as change:
            change.put_loaded({"v1": 1})
        cluster.stop()
        try:
            with pytest.raises(StateError):
                store.revision()
        finally:
            cluster.start()
        with store.transaction() as change:
            change.put_loaded({"v1": 1, "v2": 2})
        assert store.document().loaded == {"v1": 1, "v2": 2}
        assert store.revision() == 2


def test_a_connection_in_use_when_the_store_is_closed_is_closed_after_its_use(any_state):
    store = StateStore.open(any_state)
    with store.reading() as view:
        store.close()
        used = view.connection.connection.driver_connection
        assert view.revision() == 0
    with pytest.raises(Exception, match="closed"):
        used.cursor().execute("SELECT 1")
