"""Independent tasks over processes: a local dask cluster, an existing one, or none.

dask.distributed is imported only when a first task is really sent, because most runs find
everything in the cache and should not pay two seconds for a cluster.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
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
        """(task, `function(task)`) in the order of `tasks`, which is read lazily, a few ahead.

        A generator may therefore look at the results so far before it yields its next task,
        and what it sees does not depend on which worker is faster. `function` must be
        importable by name and its arguments plain values. An exception of a task is raised
        here, and so is the loss of the scheduler, as XlaCostError.
        """
        if self._processes == 0 and self._address is None:
            for task in tasks:
                yield task, function(task)
            return
        iterator = iter(tasks)
        running: deque[tuple[T, Any]] = deque()
        while True:
            for task in islice(iterator, self._ahead() - len(running)):
                running.append((task, self._connect().submit(function, task, pure=False)))
            if not running:
                return
            task, future = running.popleft()
            yield task, self._result(future)

    def _ahead(self) -> int:
        """Tasks that may wait or run at once: two per worker, so that none idles."""
        if self._address is None or self._client is None:
            return 2 * max(1, self._processes)
        threads: int = sum(self._client.nthreads().values())
        return 2 * max(1, threads)

    def _result(self, future: Any) -> Any:
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        try:
            return future.result()
        except (FutureCancelledError, KilledWorker) as error:
            where = self._address or "the local cluster"
            raise XlaCostError(
                f"workers: {where} lost a task ({type(error).__name__}); expected workers that "
                "stay; what was finished is in the cache"
            ) from error

    def _connect(self) -> Any:
        if self._client is None:
            # dask's own complaints (slow heartbeats, closed streams) help nobody here
            logging.getLogger("distributed").setLevel(logging.CRITICAL)
            self._client = self._stack.enter_context(self._existing() if self._address
                                                     else self._local())  # fmt: skip
        return self._client

    def _existing(self) -> Any:
        from distributed import Client
        from distributed.comm import parse_address, parse_host_port

        try:
            # A client that fails half-way is finalised whenever the collector likes, which can
            # deadlock the next one (dask/distributed LoopRunner): see first whether anyone listens.
            _, place = parse_address(self._address)
            host, port = parse_host_port(place)
            socket.create_connection((host, port), timeout=10).close()
            return Client(self._address, timeout=10)
        except (OSError, TimeoutError, ValueError) as error:
            raise XlaCostError(
                f"--cluster {self._address}: no dask scheduler answers there "
                f"({type(error).__name__}); expected an address such as tcp://127.0.0.1:8786"
            ) from error

    def _local(self) -> Any:
        from distributed import Client, LocalCluster

        with _children_ignore_interrupts():
            cluster = LocalCluster(
                n_workers=self._processes,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",  # any free port: the usual one may be taken
                silence_logs=logging.CRITICAL,
                memory_limit=None,
            )
        self._stack.enter_context(cluster)
        return Client(cluster)


@contextmanager
def _children_ignore_interrupts() -> Iterator[None]:
    """Processes started inside leave Ctrl-C to this one, which then ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
