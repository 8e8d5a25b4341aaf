"""The NVLinks of a card: state, far end, errors."""

from __future__ import annotations

import functools
from typing import Any, Literal

import pynvml

from ladon_slurm.collectors.nvml_cards import Card
from ladon_slurm.collectors.nvml_fields import Fields, Found
from ladon_slurm.collectors.nvml_query import Query, call
from ladon_slurm.facts import NvLink

COUNT = Fields([pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT])
# Field of NvLink -> field id, and the call of older drivers with its argument behind the link.
PARTS: dict[str, tuple[int, str, tuple[int, ...]]] = {
    "active": (pynvml.NVML_FI_DEV_NVLINK_GET_STATE, "nvmlDeviceGetNvLinkState", ()),
    "crc_errors": (
        pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
        "nvmlDeviceGetNvLinkErrorCounter",
        (pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,),
    ),
    "replays": (
        pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
        "nvmlDeviceGetNvLinkErrorCounter",
        (pynvml.NVML_NVLINK_ERROR_DL_REPLAY,),
    ),
    "recoveries": (
        pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
        "nvmlDeviceGetNvLinkErrorCounter",
        (pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,),
    ),
}
UP = {0: False, 1: True, 2: True}  # inactive, active, asleep to save power
REMOTE: dict[int, Literal["gpu", "switch", "other"]] = {
    pynvml.NVML_NVLINK_DEVICE_TYPE_GPU: "gpu",
    pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "switch",
}


def links_of(card: Card, query: Query) -> list[NvLink] | None:
    """[] where the card has none. In MIG mode there is no traffic between cards: unsupported.

    What the links do not say is None in each, with a gap like "links.crc_errors".
    """
    if card.mig:
        query.gaps["links"] = "unsupported"
        return None
    (count,) = COUNT.read(card.handle, query)
    if isinstance(count, str):
        query.gaps["links"] = count
        return None
    if count > pynvml.NVML_NVLINK_MAX_LINKS:
        query.gaps["links"] = "failed"
        return None
    return [link_of(card.handle, n, values, query) for n, values in enumerate(read(int(count), card, query))]


def read(count: int, card: Card, query: Query) -> list[list[Found]]:
    """Values of PARTS, or why not, by link."""
    found = array(count).read(card.handle, query)
    return [found[at : at + len(PARTS)] for at in range(0, len(found), len(PARTS))]


@functools.cache
def array(count: int) -> Fields:
    return Fields([(part[0], link) for link in range(count) for part in PARTS.values()])


def link_of(handle: Any, link: int, found: list[Found], query: Query) -> NvLink:
    values: dict[str, Any] = {}
    for (name, (_, function, arguments)), value in zip(PARTS.items(), found, strict=True):
        if value == "unsupported":
            values[name] = query(f"links.{name}", call(function), handle, link, *arguments)
        elif isinstance(value, str):
            query.gaps[f"links.{name}"] = value
        else:
            values[name] = value
    if values.get("active") is not None:
        values["active"] = UP.get(values["active"])
    far = query("links.remote", call("nvmlDeviceGetNvLinkRemoteDeviceType"), handle, link)
    return NvLink(link, **values, remote=REMOTE.get(far, "other") if far is not None else None)
