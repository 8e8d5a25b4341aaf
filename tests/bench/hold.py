"""One of 64 processes of a step: holds its share of a played GPU with its own pid and sleeps for ever.

A sleep in place of `play`, which looks about twenty times a second: the machine shall be quiet but for Ladon.
"""

import os

from gpus import LEVELS, Gpus

gpus = Gpus(os.environ["LADON_FAKE_NVML"])
card = int(os.environ.get("SLURM_STEP_GPUS") or os.environ["SLURM_JOB_GPUS"])
holders = int(os.environ["SLURM_NTASKS"])
whole = LEVELS["train"]
same = {key: whole[key] for key in ("util", "mem_util", "clock_mhz", "noise")}
added = {key: value / holders for key, value in whole.items() if key not in same}  # the holders add up
added["power_w"] = 70 + (whole["power_w"] - 70) / holders  # above idle
gpus.segment(card, pid=os.getpid(), **same, **added)
print("holds", card, flush=True)
os.execv("/bin/sleep", ["sleep", "infinity"])
