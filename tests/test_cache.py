"""The cache: values come back whole or not at all, whatever happens to the writer or the disk."""

import errno
import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from xla_cost import cache as cache_module
from xla_cost.cache import Cache, code_version, sources_version

KEY = {"model": "r1", "mesh": (2, 144, 1)}


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path, version="test")


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_values_come_back_under_equal_keys(cache):
    assert cache.get_json(KEY) is None
    cache.put_json(KEY, {"flops": 2**80, "x": [1.5, None]})
    assert cache.get_json({"mesh": [2, 144, 1], "model": "r1"}) == {
        "flops": 2**80,
        "x": [1.5, None],
    }
    assert cache.get_json({"model": "r1"}) is None


def test_a_stored_none_is_not_a_miss(cache):
    cache.put_json(KEY, None)
    assert cache.get_json(KEY, "absent") is None
    assert cache.get_json("other", "absent") == "absent"


def test_make_runs_once(cache):
    made = []

    def make():
        made.append(1)
        return {"n": (1, 2)}

    assert cache.get_or_make(KEY, make) == {"n": [1, 2]}
    assert cache.get_or_make(KEY, make) == {"n": [1, 2]}
    assert made == [1]


def test_changed_code_does_not_meet_old_entries(tmp_path):
    Cache(tmp_path, version="before").put_json(KEY, 1)
    assert Cache(tmp_path, version="after").get_json(KEY) is None
    assert Cache(tmp_path, version="before").get_json(KEY) == 1


def test_code_version_follows_the_source(tmp_path, monkeypatch):
    before = code_version()
    source = tmp_path / "walker.py"
    source.write_text("x = 1\n")
    own = list(cache_module._source_files(cache_module._SOURCES))
    monkeypatch.setattr(cache_module, "_source_files", lambda names: iter([*own, source]))

    def version():
        sources_version.cache_clear()
        code_version.cache_clear()
        return code_version()

    first = version()
    source.write_text("x = 2\n")
    second = version()
    monkeypatch.undo()
    assert version() == before
    assert len({before, first, second}) == 3
    assert {path.name for path in own} >= {"partition.py", "ir.py", "program.py", "groups.py"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data.replace(b"1234", b"1235"),
        lambda data: b"\xff" + data[1:],
        lambda data: data + b" ",
    ],
)
def test_damaged_entries_count_as_absent_and_are_replaced(cache, damage):
    cache.put_json(KEY, {"value": 1234})
    path = cache.path_of(KEY)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get_json(KEY) is None
    cache.put_json(KEY, {"value": 1234})
    assert cache.get_json(KEY) == {"value": 1234}


def test_environment_names_the_folder_or_turns_it_off(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_COST_CACHE", str(tmp_path))
    assert Cache().folder == tmp_path
    monkeypatch.setenv("XLA_COST_CACHE", "off")
    off = Cache()
    off.put_json(KEY, 1)
    assert off.get_json(KEY) is None
    assert files(tmp_path) == []


WRITER = """
import sys
from xla_cost.cache import Cache
cache = Cache(sys.argv[1], version="test")
value = {"payload": [int(sys.argv[2])] * 200_000}
print("ready", flush=True)
while True:
    cache.put_json("key", value)
"""


def writer(folder, number):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(number)], stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    return process


def stop(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def wait_for(cache):
    deadline = time.monotonic() + 30
    while cache.get_json("key") is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_writer_killed_at_any_moment_leaves_a_whole_value(cache, tmp_path):
    for delay_s in (0.0, 0.003, 0.011, 0.02):
        process = writer(tmp_path, 7)
        wait_for(cache)
        time.sleep(delay_s)
        stop(process)
        assert cache.get_json("key") == {"payload": [7] * 200_000}


def test_two_processes_on_one_key_never_show_a_mixture(cache, tmp_path):
    processes = [writer(tmp_path, 1), writer(tmp_path, 2)]
    try:
        wait_for(cache)
        for _ in range(40):
            payload = cache.get_json("key")["payload"]
            assert len(payload) == 200_000
            assert payload in ([1] * 200_000, [2] * 200_000)
    finally:
        for process in processes:
            stop(process)


def test_leftovers_of_killed_writers_and_old_code_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "_tidied", set())
    Cache(tmp_path, version="old").put_json(KEY, 1)
    other = tmp_path / "not-ours"
    other.mkdir()
    store = tmp_path / "xla-cost-store"
    (store / "tmp" / ".left.tmp").write_text("half")
    for path in [other, *store.iterdir(), store / "tmp" / ".left.tmp"]:
        os.utime(path, (0, 0))
    monkeypatch.setattr(cache_module, "_tidied", set())
    new = Cache(tmp_path, version="new")
    new.put_json(KEY, 2)
    assert files(tmp_path) == [new.path_of(KEY)]
    assert other.is_dir()  # nothing outside the store is touched


def failing(code):
    def fail(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_cannot_be_written_costs_one_warning(tmp_path, monkeypatch, caplog, code):
    cache = Cache(tmp_path, version="test")
    monkeypatch.setattr(cache_module, "_warned", set())
    cache.put_json("before", 1)
    monkeypatch.setattr(os, "replace", failing(code))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            cache.put_json(KEY, 2)
    assert len(caplog.records) == 1
    assert os.strerror(code) in caplog.text
    assert "going on without it" in caplog.text
    assert cache.get_json(KEY) is None
    assert cache.get_json("before") == 1
    assert files(tmp_path) == [cache.path_of("before")]  # no temporary file stays


def test_a_disk_full_in_the_middle_of_an_entry(tmp_path):
    """A real full disk: the kernel refuses the second half of a write (file size limit)."""
    script = (
        "import resource, sys\n"
        "from xla_cost.cache import Cache\n"
        "cache = Cache(sys.argv[1], version='test')\n"
        "cache.put_json('small', 1)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "cache.put_json('large', [0] * 100_000)\n"
        "assert cache.get_json('large') is None\n"
        "print(cache.get_json('small'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"
    assert done.stderr.count("cannot be written (File too large); going on without it") == 1
    assert files(tmp_path) == [Cache(tmp_path, version="test").path_of("small")]


def test_a_folder_that_is_a_file_costs_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(cache_module, "_warned", set())
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    cache = Cache(blocked / "cache", version="test")
    cache.put_json(KEY, 1)
    assert cache.get_json(KEY) is None
    assert len(caplog.records) == 1
    assert blocked.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the root user")
def test_a_read_only_folder_is_still_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(cache_module, "_warned", set())
    cache = Cache(tmp_path, version="test")
    cache.put_json("before", 1)
    for path in [*tmp_path.rglob("*"), tmp_path]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        cache.put_json(KEY, 2)
        assert cache.get_json("before") == 1
    finally:
        for path in [tmp_path, *tmp_path.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert len(caplog.records) == 1


def test_clear_removes_the_store_only(tmp_path):
    (tmp_path / "mine").write_text("x")
    cache = Cache(tmp_path, version="test")
    cache.put_json(KEY, 1)
    cache.clear()
    assert files(tmp_path) == [tmp_path / "mine"]
