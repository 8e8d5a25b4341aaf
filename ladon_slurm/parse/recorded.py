"""Which tool wrote a text: known by what it begins with. Pure."""

from __future__ import annotations

from ladon_slurm.parse import dcgm_prometheus, dcgmi_dmon, norm_csv, smi_csv, smi_dmon
from ladon_slurm.parse.telemetry import ParseError, Parser

FORMATS: dict[str, type[Parser]] = {
    "nvidia-smi": smi_csv.SmiCsv,
    "nvidia-smi-dmon": smi_dmon.SmiDmon,
    "dcgmi-dmon": dcgmi_dmon.DcgmiDmon,
    "prometheus": dcgm_prometheus.DcgmPrometheus,
    "csv": norm_csv.NormCsv,
}
LOOK = 20  # lines: messages may come before a header
CHOOSE = f"choose with --format: {', '.join(FORMATS)}"
OTHERS = (
    ('"ladon_trace"', "this is a Ladon trace already; `ladon replay` reads it"),
    ("==NVSMI LOG==", "this is nvidia-smi -q; record with --query-gpu=... --format=csv -l 5"),
    ("| NVIDIA-SMI", "this is nvidia-smi's table; record with --query-gpu=... --format=csv -l 5"),
    ("<nvidia_smi_log>", "this is nvidia-smi's XML; record with --query-gpu=... --format=csv -l 5"),
)


def recognise(head: str) -> str:
    """The format of a text that begins with `head`. Raises ParseError."""
    lines = head.lstrip("\ufeff").splitlines()[:LOOK]
    if not any(line.strip() for line in lines):
        raise ParseError(1, "empty; is the recording the right file?")
    for word, said in OTHERS:
        if word in "\n".join(lines)[:4096]:
            raise ParseError(1, said)
    for number, line in enumerate(lines, 1):
        if norm_csv.is_header(line):
            return "csv"
        if smi_csv.is_header(line):
            return "nvidia-smi"
        if dcgmi_dmon.is_header(line):
            return "dcgmi-dmon"
        if smi_dmon.is_header(line):
            return "nvidia-smi-dmon"
        if line.startswith("#") and " pid" in line:
            raise ParseError(number, "this is nvidia-smi pmon, which tells of processes; record dmon")
    if head.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return "prometheus"
    raise ParseError(1, f"which tool wrote this is not known; is its header there? {CHOOSE}")
