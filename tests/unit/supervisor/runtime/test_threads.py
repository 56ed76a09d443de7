"""Work in threads: results, exceptions, limits, and independence of threads that hang."""

import asyncio
import errno
import os
import subprocess
import sys
import threading

import pytest

from sluice.supervisor.runtime.threads import Threads


def test_thread_results_and_exceptions_are_returned():
    async def scenario():
        begun = []
        threads = Threads(asyncio.get_running_loop(), "t", 2, lambda: begun.append(threading.current_thread().name))
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        assert begun == ["t", "t"]

    asyncio.run(scenario())


def test_threads_are_limited_in_time_and_number():
    async def scenario():
        reader, writer = os.pipe()
        threads = Threads(asyncio.get_running_loop(), "t", 1)
        with pytest.raises(TimeoutError) as late:
            await threads.run(lambda: os.read(reader, 1), 0.01)
        assert late.value.strerror == os.strerror(errno.ETIMEDOUT)
        with pytest.raises(OSError, match=os.strerror(errno.EAGAIN)):
            await threads.run(lambda: 1)
        os.write(writer, b"x")
        async with asyncio.timeout(10):
            while threads._running:
                await asyncio.sleep(0.001)
        assert await threads.run(lambda: 1) == 1
        os.close(reader)
        os.close(writer)

    asyncio.run(scenario())


@pytest.mark.starts
def test_process_exits_while_thread_hangs():
    program = (
        "import asyncio, os\n"
        "from sluice.supervisor.runtime.threads import Threads\n"
        "async def main():\n"
        "    Threads(asyncio.get_running_loop(), 't', 1).run(lambda: os.read(os.pipe()[0], 1))\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0
