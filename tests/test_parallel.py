"""Tasks over processes: none, a cluster of its own, and one that runs elsewhere."""

import operator
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from xla_cost.errors import XlaCostError
from xla_cost.parallel import Workers


def test_in_this_process_tasks_are_taken_one_by_one():
    seen = []

    def tasks():
        for number in range(4):
            seen.append(f"asked for {number}")
            yield number

    with Workers(processes=0) as workers:
        for task, result in workers.map(operator.neg, tasks()):
            seen.append(f"{task} gave {result}")
    assert seen[:4] == ["asked for 0", "0 gave 0", "asked for 1", "1 gave -1"]


def test_an_address_where_nobody_listens_is_refused():
    with (
        Workers(address="tcp://127.0.0.1:1") as workers,
        pytest.raises(XlaCostError, match=r"--cluster tcp://127.0.0.1:1: no dask scheduler"),
    ):
        next(workers.map(abs, [1]))
    with (
        Workers(address="no address") as workers,
        pytest.raises(XlaCostError, match="--cluster no address: no dask scheduler"),
    ):
        next(workers.map(abs, [1]))


@contextmanager
def running_cluster():
    """A scheduler and two workers in processes of their own, on loopback; yields the address."""
    script = (
        "from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=':0',\n"
        "                      host='127.0.0.1') as cluster:\n"
        "        print(cluster.scheduler_address, flush=True)\n"
        "        input()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process.stdout.readline().strip()
        process.communicate("\n", timeout=60)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_cluster_by_address_gives_results_in_order_and_reads_only_a_few_tasks_ahead():
    asked = []

    def tasks():
        for number in range(12):
            asked.append(number)
            yield number

    with running_cluster() as address, Workers(address=address) as workers:
        results = workers.map(operator.neg, tasks())
        assert next(results) == (0, 0)
        assert len(asked) < 12  # two per worker
        assert list(results) == [(number, -number) for number in range(1, 12)]
        with pytest.raises(TypeError):
            list(workers.map(operator.neg, ["text"]))


INTERRUPTED = """
import os, signal, sys, threading, time
from xla_cost.parallel import Workers

if __name__ == "__main__":
    # a shell starts background jobs with Ctrl-C ignored; a terminal does not
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with Workers(processes=2) as workers:
            for task, _ in workers.map(time.sleep, [0, 600, 600]):
                print("first", flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_without_a_word(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "first\n"
        time.sleep(1)  # it waits for the next result by now, not in some finaliser of the last
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        out, errors = process.communicate(timeout=120)  # far below the tasks' 600
    finally:
        process.kill()
        process.wait()
    assert (out, errors, process.returncode) == ("stopped\n", "", 0)
