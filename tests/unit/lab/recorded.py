"""Recordings of other tools in their own shapes, written by hand: two GPUs, three moments each."""

SMI = """\
timestamp, index, uuid, name, pci.bus_id, utilization.gpu [%], utilization.memory [%], memory.used [MiB], \
memory.total [MiB], power.draw [W], power.limit [W], clocks.current.sm [MHz], temperature.gpu
2026/05/01 12:00:00.125, 0, GPU-aaaa, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 98 %, 40 %, 61440 MiB, 81559 MiB, 640.50 W, 700.00 W, 1980 MHz, 61
2026/05/01 12:00:00.150, 1, GPU-bbbb, NVIDIA H100 80GB HBM3, 00000000:2B:00.0, [N/A], [Not Supported], 512 MiB, 81559 MiB, [Unknown Error], 700.00 W, [GPU is lost], 40
2026/05/01 12:00:05.125, 0, GPU-aaaa, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 0 %, 0 %, 61440 MiB, 81559 MiB, 121.00 W, 700.00 W, 1980 MHz, 61
2026/05/01 12:00:05.150, 1, GPU-bbbb, NVIDIA H100 80GB HBM3, 00000000:2B:00.0, 7 %, 1 %, 512 MiB, 81559 MiB, 80.00 W, 700.00 W, 345 MHz, 40
2026/05/01 12:00:10.125, 0, GPU-aaaa, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 99 %, 41 %, 61440 MiB, 81559 MiB, 650.00 W, 700.00 W, 1980 MHz, 61
2026/05/01 12:00:10.150, 1, GPU-bbbb, NVIDIA H100 80GB HBM3, 00000000:2B:00.0, 7 %, 1 %, 512 MiB, 81559 MiB, 80.00 W, 700.00 W, 345 MHz, 40
"""
NOUNITS = """\
timestamp, index, utilization.gpu [%], power.draw [W]
2026/05/01 12:00:00.125, 0, 98, 640.50
2026/05/01 12:00:05.125, 0, [N/A], 121.00
"""
DMON = """\
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk     fb  rxpci  txpci
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz     MB   MB/s   MB/s
 20260501   12:00:00      0    640     61     70     98     40   2619   1980  61440    120     30
 20260501   12:00:00      1      -      -      -      -      -      -      -      -      -      -
 20260501   12:00:01      0    121     61     70      0      0   2619   1980  61440      0      0
 20260501   12:00:01      1     70     40     41      7      1   2619    345    512      1      1
#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk     fb  rxpci  txpci
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %    MHz    MHz     MB   MB/s   MB/s
 20260501   12:00:02      0    121     61     70      0      0   2619   1980  61440     50      0
 20260501   12:00:02      1     70     40     41      7      1   2619    345    512      1      1
"""
PLAIN_DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem smutil mmaact
# Idx      W      C      C      %      %  GPM:%  GPM:%
    0    640     61     70     98     40     91     32
    1     70      -     41      0      0      -      -
    0    121     61     70      0      0      0      0
    1     70      -     41      0      0      -      -
"""
DCGMI = """\
#Entity   GPUTL    MCUTL    POWER      TOTEC        SMACT   TENSO   DRAMA   PCITX        NVLRX
ID                          W          mJ
GPU 0     98       40       640.500    5000000000   0.912   0.320   0.240   1000000      500000000
GPU 1     N/A      N/A      70.100     N/A          0.000   N/A     0.000   N/A          0
GPU 0     0        0        121.000    5000121000   0.000   0.000   0.001   2000000      0
GPU 1     0        0        70.100     N/A          0.000   N/A     0.000   N/A          0

#Entity   GPUTL    MCUTL    POWER      TOTEC        SMACT   TENSO   DRAMA   PCITX        NVLRX
ID                          W          mJ
GPU 0     0        0        121.000    5000242000   0.000   0.000   0.001   N/A          0
GPU 1     0        0        70.100     N/A          0.000   N/A     0.000   N/A          0
"""
NORM = """\
t_s,gpu,util_pct,mem_util_pct,power_w,power_limit_w,mem_used_mib,sm_active,tensor_active,dram_active,\
pcie_tx_Bps,pcie_rx_Bps,nvlink_tx_Bps,nvlink_rx_Bps,throttle,label
0.000,0,98.0,40.0,640.5,700.0,61440.0,0.91,,0.24,1000,2000,,,,
0.000,1,,,70.1,,512.0,,,,,,,,,
5.000,0,0.0,0.0,121.0,700.0,61440.0,0.0,,0.001,3000,,,,,
5.000,1,0.0,0.0,70.1,,512.0,,,,,,,,,
10.000,0,0.0,0.0,121.0,700.0,61440.0,0.0,,0.001,,,,,,
"""


def series(metric: str, values: dict[float, str], **labels: str) -> dict:
    """One series of a Prometheus answer."""
    given = {"gpu": "0", "UUID": "GPU-aaaa", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1", **labels}
    return {"metric": {"__name__": metric, **given}, "values": [[t, v] for t, v in values.items()]}


def answer(*many: dict) -> dict:
    """What /api/v1/query_range answers."""
    return {"status": "success", "data": {"resultType": "matrix", "result": list(many)}}


T = 1777636800
RANGE = answer(
    series("DCGM_FI_DEV_GPU_UTIL", {T: "98", T + 15: "0", T + 30: "0"}),
    series("DCGM_FI_DEV_POWER_USAGE", {T: "640.5", T + 15: "NaN", T + 30: "121"}),
    series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {T: "5000000000", T + 15: "5001800000"}),
    series("DCGM_FI_PROF_NVLINK_RX_BYTES", {T: "4e8", T + 15: "2e8", T + 30: "0"}),
    series("DCGM_FI_DEV_XID_ERRORS", {T: "0", T + 15: "0", T + 30: "79"}),
    series("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", {T: "1"}),
    series("DCGM_FI_DEV_GPU_UTIL", {T: "5"}, gpu="1", UUID="GPU-bbbb"),
    series("DCGM_FI_PROF_DRAM_ACTIVE", {T: "0.4"}, gpu="1", UUID="GPU-bbbb", GPU_I_ID="3"),
    series("DCGM_FI_DEV_POWER_USAGE", {T: "300"}, gpu="1", UUID="GPU-bbbb", GPU_I_ID="3"),
)
