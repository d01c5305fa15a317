"""Numbers in a file that siblings read."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from service.metrics.cells import Cells, forget_worker
from service.metrics.scrape import exposition


def stored(folder: Path) -> list[float]:
    return [
        value for file in folder.glob("counter_*.db") for _, value, _, _ in MmapedDict.read_all_values_from_file(file)
    ]


def test_what_is_counted_stands_in_the_file_at_once(tmp_path: Path) -> None:
    cells = Cells(tmp_path, 7)
    cell = cells.counter("seen", "how many", {"version": "v1"})
    cell.inc(3)
    assert stored(tmp_path) == [3.0]
    cells.close()


def test_a_number_is_written_where_it_stands_after_the_file_has_grown(tmp_path: Path) -> None:
    cells = Cells(tmp_path, 7)
    first = cells.counter("seen", "how many", {"version": "first"})
    others = [cells.counter("seen", "x" * 4000, {"version": str(n)}) for n in range(600)]
    first.inc(2)
    others[-1].inc(5)
    values = stored(tmp_path)
    assert (values[0], values[-1], sum(values)) == (2.0, 5.0, 7.0)
    cells.close()


def test_counts_go_on_where_a_process_of_that_number_ended(tmp_path: Path) -> None:
    before = Cells(tmp_path, 7)
    before.counter("seen", "how many", {}).inc(2)
    before.close()
    again = Cells(tmp_path, 7)
    again.counter("seen", "how many", {}).inc()
    assert stored(tmp_path) == [3.0]
    again.close()


@pytest.fixture(name="threads_take_quick_turns")
def _quick_turns():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_take_quick_turns")
def test_a_scrape_while_workers_start_and_die_answers(tmp_path: Path) -> None:
    answering = Cells(tmp_path, 1)
    answering.gauge("workers", "how many", {}).set(1)

    def live(pid: int) -> None:
        cells = Cells(tmp_path, pid)
        cells.gauge("workers", "how many", {}).set(1)
        cells.close()
        forget_worker(tmp_path, pid)

    with ThreadPoolExecutor(1) as pool:
        last = [pool.submit(live, pid) for pid in range(2, 300)][-1]
        while not last.done():
            assert b"twinrank_workers" in exposition(tmp_path, None, [], "")[0]
    answering.close()
