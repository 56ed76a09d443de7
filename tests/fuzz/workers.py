"""Coverage-guided fuzzing of whole workers: libFuzzer's octets are the decisions of a conversation of several parties.

    SLUICE_FLAVOUR=fuzz scripts/with-asan .venv/bin/python -m tests.fuzz.workers [options of libFuzzer] [folders]
    … -m tests.fuzz.workers FILE            run one file again, such as a crash
    … -m tests.fuzz.workers --case FILE     print its events as JSON, for tests/vectors/engine

`make fuzz-workers` builds what this needs (docs/internals/tests.md).
"""

import ctypes
import json
import os
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Any, Final

from tests.component.engine.replay import play
from tests.fuzz.conversation import OtherRouters, conversation
from tests.fuzz.decisions import SLICE, Decisions
from tests.fuzz.edges import EdgeModel
from tests.fuzz.targets import ROUTERS

#: Most events of a case. Longer cases take seconds, and find little that shorter ones do not.
EVENTS_MOST: Final = 150
#: Inputs stored in the repository. Each covers code that no other input covers.
SEEDS: Final = Path(__file__).with_name("corpus.zip")
EDGES: Final = OtherRouters("edge", EdgeModel, lambda rng, number, index: [])
LibFuzzerCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_uint8), ctypes.c_size_t)


def case_of(octets: bytes) -> dict[str, Any]:
    """Return the case that these octets decide."""
    rng = Decisions(octets)
    others = rng.choice((None, ROUTERS, EDGES))
    return conversation(rng, rng.choice((1, 2, 3)), others, rng.steps())


def _run(data: Any, size: int) -> int:
    """Play the case of one input. An exception aborts the process, so that libFuzzer writes the input to a file."""
    try:
        play(case_of(ctypes.string_at(data, size)))
    except BaseException:  # noqa: BLE001 - nothing may pass libFuzzer, which is C
        traceback.print_exc()
        sys.stderr.flush()
        os.abort()
    return 0


def unpack_seeds(folder: Path) -> None:
    """Extract the stored inputs to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if SEEDS.exists():
        with zipfile.ZipFile(SEEDS) as archive:
            archive.extractall(folder)


def main(arguments: list[str]) -> int:
    """Run libFuzzer, which ends the process itself."""
    if arguments[:1] == ["--case"]:
        print(json.dumps(case_of(Path(arguments[1]).read_bytes())))
        return 0
    if arguments[:1] == ["--unpack"]:
        unpack_seeds(Path(arguments[1]))
        return 0
    library = ctypes.CDLL(None)  # with-asan has loaded libFuzzer
    if ctypes.c_int.in_dll(library, "slice_octets").value != SLICE:
        sys.exit("workers: libfuzzer/slices.c divides the input otherwise than decisions.py")
    again = f"{sys.executable} -m tests.fuzz.workers"  # libFuzzer runs itself again for -merge
    words = [again.encode(), f"-max_len={SLICE * (1 + EVENTS_MOST)}".encode(), *map(os.fsencode, arguments), None]
    count = ctypes.c_int(len(words) - 1)
    row = ctypes.cast((ctypes.c_char_p * len(words))(*words), ctypes.POINTER(ctypes.c_char_p))
    target = LibFuzzerCallback(_run)
    return int(library.LLVMFuzzerRunDriver(ctypes.byref(count), ctypes.byref(row), target))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
