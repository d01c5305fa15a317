"""Numbers in a file that siblings read."""

from pathlib import Path

from prometheus_client.mmap_dict import MmapedDict

from service.metrics.cells import Cells


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
