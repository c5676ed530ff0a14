"""Independent tasks over processes: a local dask cluster, an existing one, or none.

dask.distributed is imported only when a first task is really sent, because most runs find
everything in the cache and should not pay two seconds for a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, TypeVar

from xla_cost.errors import XlaCostError

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """A context manager that runs tasks over processes and owns its cluster.

    `address` is a dask scheduler (`tcp://host:port`); without one a local cluster of
    `processes` single-threaded workers starts on first use; `processes=0` runs in this
    process.
    """

    def __init__(self, *, processes: int | None = None, address: str | None = None) -> None:
        self._processes = (os.cpu_count() or 1) if processes is None else processes
        self._address = address
        self._stack = ExitStack()
        self._client: Any = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[tuple[T, R]]:
        """(task, `function(task)`) as they finish. `tasks` is consumed lazily, a few ahead.

        A generator may therefore look at results so far before it yields its next task.
        `function` must be importable by name and its arguments plain values.
        An exception of a task is raised here.
        """
        if self._processes == 0 and self._address is None:
            for task in tasks:
                yield task, function(task)
            return
        iterator = iter(tasks)
        running: Any = None
        by_key: dict[str, T] = {}
        ahead = 2 * max(1, self._processes)
        exhausted = False
        while True:
            while not exhausted and len(by_key) < ahead:
                try:
                    task = next(iterator)
                except StopIteration:
                    exhausted = True
                    break
                client = self._connect()
                future = client.submit(function, task, pure=False)
                by_key[future.key] = task
                if running is None:
                    from distributed import as_completed

                    running = as_completed([future])
                else:
                    running.add(future)
            if not by_key:
                return
            done = next(running)
            yield by_key.pop(done.key), done.result()

    def _connect(self) -> Any:
        if self._client is None:
            from distributed import Client, LocalCluster

            if self._address is not None:
                try:
                    self._client = self._stack.enter_context(Client(self._address, timeout=10))
                except (OSError, TimeoutError, ValueError) as error:
                    raise XlaCostError(
                        f"--cluster {self._address}: no dask scheduler answers there ({error}); "
                        "expected an address such as tcp://127.0.0.1:8786"
                    ) from error
            else:
                cluster = self._stack.enter_context(
                    LocalCluster(
                        n_workers=self._processes,
                        threads_per_worker=1,
                        processes=True,
                        dashboard_address=":0",
                        silence_logs=40,
                    )
                )
                self._client = self._stack.enter_context(Client(cluster))
        return self._client
