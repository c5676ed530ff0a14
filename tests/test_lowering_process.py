"""Lowering and the process around it: threads, storage, devices, versions of jax."""

import glob
import os
import subprocess
import sys
import tempfile
import threading

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P
from lowering_helpers import SPECS, ShapeDtype, W, X, dots, matmul, mesh_of

from xla_cost.errors import StorageError, XlaCostError
from xla_cost.lowering import partition, stop


def test_normal_compiles_work_before_between_and_after():
    x = jnp.arange(6.0).reshape(2, 3)
    assert float(jax.jit(lambda a: a.sum() * 2)(x)) == 2 * 15
    partition(matmul, (X, W))
    jitted = jax.jit(lambda a: a.sum() * 3)
    hlo = partition(jitted, (x,))  # the very function the user compiles next
    assert "HloModule jit__lambda" in hlo.text
    assert float(jitted(x)) == 3 * 15
    assert "xla_cost" not in jitted.lower(x).as_text()


def test_other_threads_compile_and_run_undisturbed():
    failures, stopped, results = [], threading.Event(), []

    def user():
        try:
            while not stopped.is_set():
                number = len(results)
                results.append(float(jax.jit(lambda a, n=number: a.sum() + n)(jnp.ones(7))))
        except Exception as error:
            failures.append(error)

    def model(index):
        try:
            for size in (8, 16, 24):
                hlo = partition(lambda a: a @ a, (ShapeDtype((size, size + 0), jnp.float32),))
                assert dots(hlo.text) == [f"{size},{size}"]
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=user)]
    threads += [threading.Thread(target=model, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    stopped.set()
    threads[0].join()
    assert failures == []
    assert results == [7.0 + number for number in range(len(results))]


def test_helpers_compiled_while_tracing_run_normally():
    seen = []

    def fn(x):
        with jax.ensure_compile_time_eval():
            seen.append(float(jnp.arange(5).sum()))  # compiled and run while tracing
        return x * seen[0]

    partition(fn, (X,))
    assert seen == [10.0]


def test_skipped_passes_do_not_change_the_text(monkeypatch):
    mesh = mesh_of()

    def fn(x, w):
        def layer(h, _):
            h = jax.lax.with_sharding_constraint(jnp.tanh(h @ w @ w.T), P("model", None))
            return h.at[0].add(jnp.arange(32.0).astype(h.dtype)), jnp.sort(h[:, 0])

        return jax.lax.scan(layer, x, None, length=5)

    def text():
        return partition(fn, (X, W), mesh=mesh, in_shardings=SPECS).text

    skipping = text()
    monkeypatch.setattr(stop, "SKIPPED_PASSES", ("all_to_all_decomposer",))
    assert text() == skipping


def test_storage_that_is_full_or_missing_falls_back(monkeypatch, tmp_path):
    expected = partition(matmul, (X, W)).text
    monkeypatch.setattr(stop, "MEMORY_BACKED", str(tmp_path / "none"))
    assert partition(matmul, (X, W)).text == expected

    # a file that ends in the middle, as on a disk that fills up
    monkeypatch.setattr(stop, "MEMORY_BACKED", str(tmp_path))
    monkeypatch.setattr(stop, "_NEEDED_BYTES", 0)
    read, tries = stop._read_dump, []

    def cut_short(folder, place, lines):
        tries.append(folder)
        if folder.parent == tmp_path:
            for path in folder.glob("*.txt"):
                path.write_text(path.read_text()[:200])
        return read(folder, place, lines)

    monkeypatch.setattr(stop, "_read_dump", cut_short)
    assert partition(matmul, (X, W)).text == expected
    assert len(tries) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_dump_that_no_folder_takes_is_no_refusal_of_the_program(monkeypatch, tmp_path):
    monkeypatch.setattr(stop, "_scratch_parents", lambda: iter([str(tmp_path)]))
    read = stop._read_dump

    def cut_after_a_brace(folder, place, lines):
        for path in folder.glob("*.txt"):
            text = path.read_text()
            path.write_text(text[: text.rindex("}", 0, text.rindex("\n}")) + 1])
        return read(folder, place, lines)

    monkeypatch.setattr(stop, "_read_dump", cut_after_a_brace)
    with pytest.raises(StorageError, match=f"the dump of XLA cannot be written in {tmp_path} "):
        partition(matmul, (X, W))
    monkeypatch.setattr(stop, "_read_dump", read)
    monkeypatch.setattr(stop, "_scratch_parents", lambda: iter([str(tmp_path / "none")]))
    with pytest.raises(StorageError, match=r"in .*none \(No such file or directory\)$"):
        partition(matmul, (X, W))


def leftovers() -> set[str]:
    folders = ("/dev/shm", tempfile.gettempdir())
    return {
        found for folder in folders for found in glob.glob(f"{folder}/xla_cost_{os.getpid()}_*")
    }


def test_nothing_is_left_in_temporary_storage():
    before = leftovers()
    partition(matmul, (X, W))
    with pytest.raises(XlaCostError):
        partition(lambda x: x @ x, (X,))
    after = leftovers()
    assert after - before == set()


def in_new_process(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )  # fmt: skip
    return done.stdout


def test_devices_are_made_before_jax_starts_and_counted_after():
    out = in_new_process(
        "from xla_cost.lowering import ensure_devices\n"
        "from xla_cost.errors import XlaCostError\n"
        "print(len(ensure_devices(8)), len(ensure_devices()))\n"
        "for count in (2000, 2049):\n"
        "    try: ensure_devices(count)\n"
        "    except XlaCostError as error: print(error)\n"
    )
    assert out.splitlines() == [
        "1152 1152",
        "devices: jax is already running with 1152 CPU devices and 2000 are needed; "
        "set XLA_FLAGS=--xla_force_host_platform_device_count=2000 in the environment (or in "
        "Python call xla_cost.lowering.ensure_devices(2000) before anything else uses jax)",
        "2049 devices: XLA partitions for at most 2048 here",
    ]


def test_devices_asked_for_by_the_user_are_kept():
    out = in_new_process(
        "import jax\n"
        "jax.config.update('jax_num_cpu_devices', 4)\n"
        "jax.devices()\n"
        "from xla_cost.lowering import ensure_devices\n"
        "from xla_cost.errors import XlaCostError\n"
        "print(len(ensure_devices()), len(ensure_devices(3)))\n"
        "try: ensure_devices(8)\n"
        "except XlaCostError as error: print('refused')\n"
    )
    assert out.split() == ["4", "4", "refused"]


def test_untested_versions_of_jax_are_named():
    from xla_cost.lowering.devices import version_problem

    assert version_problem("jax", "0.10.2") == ""
    assert version_problem("jax", "0.10.3.dev2026") == ""
    assert version_problem("jaxlib", "0.9.1") == (
        "jaxlib 0.9.1 is installed; xla_cost needs jaxlib >= 0.10.2 and < 0.11.0"
    )
    assert version_problem("jax", "0.11.0") != ""


def test_the_tested_range_is_the_one_that_is_installed_with():
    import tomllib
    from pathlib import Path

    from xla_cost.lowering.devices import SUPPORTED_JAX

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    low, high = (".".join(map(str, bound)) for bound in SUPPORTED_JAX)
    assert f"jax>={low},<{high.removesuffix('.0')}" in project["project"]["dependencies"]
