"""What Slurm prints, written by hand in the shape of 22.05, 24.11 and 26.05."""

from __future__ import annotations

from ladon_slurm.children import Result


def said(out: str = "", err: str = "", rc: int | None = 0, truncated: bool = False) -> Result:
    """How a command ended."""
    return Result(rc, out.encode(), err.encode(), truncated)


NODE = {
    "22.05": (
        "NodeName=gn07 Arch=x86_64 CoresPerSocket=32  CPUAlloc=16 CPUEfctv=128 CPUTot=128 CPULoad=9.10"
        " AvailableFeatures=h100 ActiveFeatures=h100 Gres=gpu:h100:8 NodeAddr=10.1.0.7 NodeHostName=gn07"
        " Version=22.05.8 OS=Linux 5.15.0-91-generic #101-Ubuntu SMP  RealMemory=1000000 AllocMem=64000"
        " FreeMem=900000 Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A"
        " MCS_label=N/A Partitions=gpu,long  BootTime=2026-03-01T08:00:00"
        " SlurmdStartTime=2026-03-01T08:01:00 LastBusyTime=2026-03-02T00:00:00 CfgTRES=cpu=128,mem=1000000M"
        " AllocTRES=cpu=16,gres/gpu=2 CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s"
        " ExtSensorsWatts=0 ExtSensorsTemp=n/s{reason}\n"
    ),
    "24.11": (
        "NodeName=gn07 Arch=x86_64 CoresPerSocket=32  CPUAlloc=16 CPUEfctv=128 CPUTot=128 CPULoad=9.10"
        " AvailableFeatures=h100 ActiveFeatures=h100 Gres=gpu:h100:8 NodeAddr=10.1.0.7 NodeHostName=gn07"
        " Version=24.11.5 OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC  RealMemory=1000000 AllocMem=64000"
        " FreeMem=N/A Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A"
        " MCS_label=N/A Partitions=gpu  BootTime=2026-03-01T08:00:00 SlurmdStartTime=2026-03-01T08:01:00"
        " LastBusyTime=2026-03-02T00:00:00 ResumeAfterTime=None CfgTRES=cpu=128,mem=1000000M AllocTRES="
        " CurrentWatts=0 AveWatts=0{reason} Comment=State=DOWN said someone\n"
    ),
    "26.05": (
        "NodeName=gn07 Arch=x86_64 CoresPerSocket=32  CPUAlloc=0 CPUEfctv=128 CPUTot=128 CPULoad=0.10"
        " AvailableFeatures=h100 ActiveFeatures=h100 Gres=gpu:h100:8 NodeAddr=10.1.0.7 NodeHostName=gn07"
        " Port=7003 Version=26.05.5 OS=Linux 6.12.0-1-amd64 #1 SMP  RealMemory=1000000 AllocMem=0"
        " FreeMem=990000 Sockets=2 Boards=1 State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A"
        " MCS_label=N/A Partitions=gpu  BootTime=2026-03-01T08:00:00 SlurmdStartTime=2026-03-01T08:01:00"
        " LastBusyTime=2026-03-02T00:00:00 ResumeAfterTime=None SuspendTime=INFINITE CfgTRES=cpu=128"
        " AllocTRES= CurrentWatts=0 AveWatts=0{reason} ReservationName=maint_7\n"
    ),
}

STEP = {
    "22.05": (
        "StepId={id} UserId=1000 StartTime=2026-03-02T10:00:00 TimeLimit=UNLIMITED State=RUNNING"
        " Partition=gpu NodeList=gn[07-08] Nodes=2 CPUs=2 Tasks=2 Name=train Network=(null)"
        " TRES=cpu=2,gres/gpu=2 ResvPorts=(null) CPUFreqReq=Default Dist=Block SrunHost:Pid=login1:4711\n"
    ),
    "24.11": (
        "StepId={id} UserId=1000 StartTime=2026-03-02T10:00:00 TimeLimit=UNLIMITED State=RUNNING"
        " Partition=gpu NodeList=gn[07-08] Nodes=2 CPUs=2 Tasks=2 Name=x State=COMPLETED UserId=0"
        " Network=(null) TRES=cpu=2 ResvPorts=(null) CPUFreqReq=Default Dist=Block\n"
    ),
    "26.05": (
        "StepId={id} SLUID=s012345678ABCD UserId=alice(1000) StartTime=2026-03-02T10:00:00"
        " TimeLimit=UNLIMITED State=RUNNING Partition=gpu NodeList=gn[07-08] Nodes=2 CPUs=2 Tasks=2"
        " Name=train Network=(null) TRES=cpu=2 ResvPorts=(null) CPUFreqReq=Default Dist=Block\n"
    ),
}


def jobs(*changes: dict[str, str], widths: dict[str, int]) -> str:
    """The lines of `squeue -O` for jobs that differ from one of alice's as said."""
    common = {
        "JobID": "42", "UserID": "1000", "UserName": "alice", "State": "RUNNING", "Partition": "gpu",
        "QOS": "normal", "BatchFlag": "1", "Requeue": "1", "RestartCnt": "0", "JobArrayID": "42",
        "HetJobID": "N/A", "NodeList": "n[1-2]", "Account": "hep",
    }  # fmt: skip
    rows = [common | change for change in changes]
    return "".join("".join(f"{row[k][:w]:<{w}}|" for k, w in widths.items()) + "\n" for row in rows)
