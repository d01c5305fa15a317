"""Changes of the document: judged and written in one transaction, on a real store."""

import time
from dataclasses import replace

import pytest

from service import changes
from service.changes import Conflict, Proposal, Stale, Terms, Unknown
from service.state import Document, StateStore, VersionState, Worker

KNOWN = {"v1", "v2", "v3"}


@pytest.fixture(name="store")
def _store(tmp_path):
    """v1 has all the weight at epoch 1; v1 and v2 are ready, v3 is on disk alone."""
    with StateStore.open(f"sqlite:///{tmp_path}/state.db") as store:
        with store.transaction() as change:
            changes.start(change, ["v1", "v2"], {"v1": 1})
        tell(store)
        yield store


def tell(store, worker="w0", **states):
    told = {"v1": "ready", "v2": "ready", **states}
    rows = {name: VersionState(*(state if isinstance(state, tuple) else (state,))) for name, state in told.items()}
    store.tell(Worker("here", worker, 1, True, 1, 1, 0.0, time.time(), rows))


def put(store, weights, terms=None, **more):
    with store.transaction() as change:
        return changes.put_weights(change, Proposal(weights, **more), terms or Terms(KNOWN))


def undo(store, epoch=None, terms=None):
    with store.transaction() as change:
        return changes.rollback(change, epoch, terms or Terms(KNOWN))


def test_only_an_empty_store_is_started(store):
    with store.transaction() as change:
        assert changes.start(change, ["v2"], {"v2": 1}).weights == {"v1": 1}


def test_nothing_to_start_with_leaves_the_store_empty(tmp_path):
    with StateStore.open(f"sqlite:///{tmp_path}/other.db") as store, store.transaction() as change:
        assert changes.start(change, [], {}) == Document()


def test_at_first_the_default_is_the_heaviest(tmp_path):
    with StateStore.open(f"sqlite:///{tmp_path}/other.db") as store, store.transaction() as change:
        document = changes.start(change, ["v3"], {"v1": 10, "v2": 90})
    assert (document.default, sorted(document.loaded), document.epoch) == ("v2", ["v1", "v2", "v3"], 1)


def test_a_switch_is_a_new_epoch_with_the_fraction_it_moves(store):
    done = put(store, {"v1": 90, "v2": 10})
    assert (done.new.epoch, done.new.weights, done.moved) == (2, {"v1": 90, "v2": 10}, pytest.approx(0.1))


def test_what_is_left_out_keeps_its_value(store):
    put(store, {"v1": 1}, coverage=0.5, default="v2", experiment="home")
    new = put(store, {"v2": 1}).new
    assert (new.coverage, new.default, new.experiment) == (0.5, "v2", "home")


def test_a_version_not_named_has_weight_0(store):
    put(store, {"v1": 1, "v2": 1})
    assert put(store, {"v2": 1}).new.weights == {"v2": 1}


def test_weight_0_is_kept_as_none(store):
    assert put(store, {"v1": 0, "v2": 5}).new.weights == {"v2": 5}


def test_the_same_split_again_is_no_new_epoch_whatever_the_comment(store):
    put(store, {"v1": 90, "v2": 10})
    again = put(store, {"v2": 10.0, "v1": 90.0}, comment="again")
    assert (again.new_epoch, again.new.epoch, again.moved) == (False, 2, 0.0)


def test_a_dry_run_changes_nothing(store):
    before = store.document()
    done = put(store, {"v2": 1}, Terms(KNOWN, dry_run=True))
    assert (done.moved, done.new.weights) == (1.0, {"v2": 1})
    assert store.document() == before


def test_a_changed_experiment_is_warned_of(store):
    put(store, {"v1": 1, "v2": 1})
    done = put(store, {"v1": 1, "v2": 1}, Terms(KNOWN, dry_run=True), experiment="other")
    assert "all units are redrawn" in done.warnings[0]
    assert done.moved == pytest.approx(0.5)


@pytest.mark.parametrize("more", [{"weights": {"v9": 1}}, {"weights": {"v1": 1, "v9": 0}}])
def test_ab03_an_unknown_version_is_unknown_even_at_weight_0(store, more):
    with pytest.raises(Unknown, match="v9"):
        put(store, **more)


def test_an_unknown_default_is_unknown(store):
    with pytest.raises(Unknown, match="v9"):
        put(store, {"v1": 1}, default="v9")


def test_weight_for_a_version_that_is_not_ready_conflicts(store):
    with pytest.raises(Conflict, match=r"v3.*not ready"):
        put(store, {"v1": 1, "v3": 1})


def test_weight_0_for_a_version_that_is_not_ready_is_fine(store):
    assert put(store, {"v1": 2, "v3": 0}).new_epoch


def test_a_version_ready_in_one_worker_alone_is_not_ready(store):
    tell(store, "w1", v2="loading")
    with pytest.raises(Conflict, match="'v2' is loading"):
        put(store, {"v2": 1})


def test_why_a_version_failed_is_in_the_conflict(store):
    tell(store, "w1", v2=("failed", "model.pt: no TorchScript module"))
    with pytest.raises(Conflict, match="no TorchScript module"):
        put(store, {"v2": 1})


def test_a_default_that_is_not_ready_conflicts_only_where_it_is_new(store):
    with pytest.raises(Conflict, match="v3"):
        put(store, {"v1": 1}, default="v3")
    tell(store, v1="failed")
    assert put(store, {"v2": 1}).new.default == "v1"


def test_a_stale_epoch_carries_the_current_document(store):
    put(store, {"v2": 1})
    with pytest.raises(Stale) as stale:
        put(store, {"v1": 1}, Terms(KNOWN, epochs={1}))
    assert stale.value.document.epoch == 2


def test_one_of_several_epochs_may_match(store):
    assert put(store, {"v2": 1}, Terms(KNOWN, epochs={7, 1})).new.epoch == 2


def test_an_undo_restores_what_the_split_replaced_and_undone_again_goes_further_back(store):
    put(store, {"v1": 90, "v2": 10})
    put(store, {"v1": 50, "v2": 50})
    first, second = undo(store), undo(store)
    assert (first.new.epoch, first.new.weights) == (4, {"v1": 90, "v2": 10})
    assert (second.new.epoch, second.new.weights) == (5, {"v1": 1})
    with pytest.raises(Conflict, match="no earlier split"):
        undo(store)


def test_a_change_after_an_undo_is_undone_to_the_undone_state(store):
    put(store, {"v2": 1})
    undo(store)
    put(store, {"v1": 50, "v2": 50})
    assert undo(store).new.weights == {"v1": 1}


def test_an_epoch_can_be_picked_and_that_be_undone(store):
    put(store, {"v2": 1})
    put(store, {"v1": 1, "v2": 1})
    assert undo(store, 2).new.weights == {"v2": 1}
    assert undo(store).new.weights == {"v1": 1, "v2": 1}


def test_a_rollback_to_the_current_epoch_is_still_a_new_one(store):
    done = undo(store, 1)
    assert (done.new_epoch, done.moved) == (True, 0.0)


def test_a_rollback_restores_coverage_default_and_experiment(store):
    put(store, {"v2": 1}, coverage=0.5, default="v2", experiment="home")
    new = undo(store).new
    assert (new.coverage, new.default, new.experiment) == (1.0, "v1", "default")


def test_an_epoch_that_never_was_is_unknown(store):
    with pytest.raises(Unknown, match="99"):
        undo(store, 99)


def test_a_rollback_to_a_version_that_is_not_ready_conflicts(store):
    put(store, {"v2": 1}, default="v2")
    tell(store, v1=("failed", "gone"))
    with pytest.raises(Conflict, match="v1"):
        undo(store)


def test_a_wish_is_new_once(store):
    with store.transaction() as change:
        first, new = changes.ask(change, "v3")
        again, anew = changes.ask(change, "v3")
    assert (new, anew) == (True, False)
    assert first == again


def test_a_wish_for_a_version_that_failed_somewhere_is_made_anew(store):
    tell(store, "w1", v2=("failed", "disk"))
    with store.transaction() as change:
        before = change.document().loaded["v2"]
        document, new = changes.ask(change, "v2")
    assert not new
    assert document.loaded["v2"] == document.revision > before


def test_a_wish_is_taken_back_only_while_it_is_the_same_and_has_no_part(store):
    with store.transaction() as change:
        asked = changes.ask(change, "v3")[0].loaded["v3"]
        assert "v3" in changes.unask(change, "v3", asked - 1).loaded
        assert "v3" not in changes.unask(change, "v3", asked).loaded
        assert "v1" in changes.unask(change, "v1", change.document().loaded["v1"]).loaded


@pytest.mark.parametrize(
    ("document", "says"), [({"weights": {"v2": 1}}, "has weight"), ({"weights": {"v1": 1}, "default": "v2"}, "default")]
)
def test_a_version_in_use_is_not_unloaded(store, document, says):
    with store.transaction() as change:
        change.put_traffic(replace(change.document(), **document).traffic(), who="me", undo=None)
        with pytest.raises(Conflict, match=says):
            changes.unload(change, "v2", KNOWN)


def test_a_version_out_of_use_is_unloaded(store):
    with store.transaction() as change:
        assert "v2" not in changes.unload(change, "v2", KNOWN).loaded


def test_a_version_that_never_was_cannot_be_unloaded(store):
    with store.transaction() as change, pytest.raises(Unknown):
        changes.unload(change, "v9", KNOWN)


def test_a_version_whose_folder_went_can_still_be_unloaded(store):
    with store.transaction() as change:
        assert "v2" not in changes.unload(change, "v2", {"v1"}).loaded


def switch(store, version, revision):
    with store.transaction() as change:
        return changes.switch_catalog(change, version, revision)


def test_a_catalog_switch_asks_for_the_version_anew_and_leaves_the_epoch(store):
    before = store.document()
    document, replaced = switch(store, "v2", 3)
    assert (document.catalogs, replaced) == ({"v2": 3}, 0)
    assert (document.epoch, document.revision) == (before.epoch, before.revision + 1)
    assert document.loaded == {**before.loaded, "v2": document.revision}


def test_the_same_catalog_again_changes_nothing(store):
    first, _ = switch(store, "v2", 3)
    assert switch(store, "v2", 3) == (first, None)


def test_the_same_catalog_again_is_asked_for_anew_where_a_worker_could_not_have_it(store):
    first, _ = switch(store, "v2", 3)
    tell(store, "w1", v2=("ready", "catalogs/3.parquet: damaged", first.loaded["v2"], 0))
    again, replaced = switch(store, "v2", 3)
    assert replaced is None
    assert again.loaded["v2"] > first.loaded["v2"]


def test_a_catalog_is_switched_back_by_an_older_revision(store):
    switch(store, "v2", 3)
    assert switch(store, "v2", 0)[0].catalogs == {}


@pytest.mark.parametrize(("version", "says"), [("v3", "'v3' is not loaded"), ("v9", "'v9' is not loaded")])
def test_a_version_that_is_not_loaded_has_no_catalog_to_switch(store, version, says):
    with pytest.raises(Conflict, match=says):
        switch(store, version, 1)


def test_a_version_that_is_not_ready_everywhere_has_no_catalog_to_switch(store):
    tell(store, "w1", v2="loading")
    with pytest.raises(Conflict, match="'v2' is loading"):
        switch(store, "v2", 1)


def test_a_catalog_switch_is_taken_back_only_while_it_is_the_last_wish(store):
    asked = switch(store, "v2", 3)[0].loaded["v2"]
    with store.transaction() as change:
        assert changes.unswitch_catalog(change, "v2", asked - 1, 0).catalogs == {"v2": 3}
        assert changes.unswitch_catalog(change, "v2", asked, 0).catalogs == {}


def test_an_unload_forgets_the_catalog_revision(store):
    switch(store, "v2", 3)
    with store.transaction() as change:
        changes.unload(change, "v2", KNOWN)
        assert changes.ask(change, "v2")[0].catalogs == {}


def test_a_switch_of_weights_and_its_undo_leave_the_catalogs(store):
    switch(store, "v2", 3)
    assert put(store, {"v2": 1}).new.catalogs == {"v2": 3}
    assert undo(store).new.catalogs == {"v2": 3}
