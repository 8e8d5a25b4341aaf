"""Writes a stub for every NVML function that the installed nvidia-ml-py can call and the C files do not have.

A missing symbol is not the same as "not supported": other tools complain about it.
Usage: genstubs.py pynvml.py FILE.c... > stubs.c
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

STUB = """API {0}(void)
{{
	ENTER_SYSTEM();
	LEAVE(NULL, NOT_SUPPORTED);
}}
"""


def main(binding: str, *sources: str) -> None:
    called = set(re.findall(r'_nvmlGetFunctionPointer\(\s*"(nvml\w+)"', Path(binding).read_text()))
    played = set(re.findall(r"\b(nvml[A-Z]\w+)[(,)]", "".join(Path(s).read_text() for s in sources)))
    print('/* Made by genstubs.py. */\n#include "state.h"\n')
    print("\n".join(STUB.format(name) for name in sorted(called - played)))


main(*sys.argv[1:])
