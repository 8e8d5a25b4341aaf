"""The node worker's answer is put together of its parts; what hangs costs that part and those behind it."""

from ladon_slurm.facts import Disk, NodeFacts
from ladon_slurm.parse import answers

DISK = b'{"facts":{"disks":[{"mount":"%s","type":"ext4","free_bytes":5}]}}'
LINES = [
    b'{"asking":"memory"}',
    b'{"facts":{"memory_bytes":64,"memory_available_bytes":32}}',
    b'{"asking":"file system /"}',
    DISK % b"/",
    b'{"asking":"file system /mnt"}',
]


def test_parts_are_joined():
    seen = answers.node([*LINES, DISK % b"/mnt", b'{"source":"ok"}'], done=True)
    assert seen.source == "ok"
    assert seen.facts == NodeFacts(
        memory_bytes=64,
        memory_available_bytes=32,
        disks=[Disk("/", "ext4", free_bytes=5), Disk("/mnt", "ext4", free_bytes=5)],
    )


def test_a_file_system_that_does_not_answer_is_named_and_the_rest_is_kept():
    seen = answers.node(LINES, done=False, skip=["ports"])
    assert (seen.source, seen.why) == ("late", "does not answer: file system /mnt")
    assert seen.hung == ["ports", "file system /mnt"]
    assert seen.facts is not None
    assert seen.facts.disks == [Disk("/", "ext4", free_bytes=5)]
    assert seen.facts.ports is None
    assert seen.facts.hung == seen.hung


def test_a_worker_that_said_nothing_says_nothing_of_the_node():
    seen = answers.node([], done=False)
    assert (seen.source, seen.facts) == ("late", None)
