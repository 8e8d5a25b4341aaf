"""Versions that NVML tells stand beside what the node's own parts say, on the same line."""

from ladon_slurm.attribute import FACTS_S, Known, attribute
from ladon_slurm.facts import NodeFacts
from ladon_slurm.parse.answers import HostSeen, NodeSeen, NvmlSeen

VERSIONS = NodeFacts(driver="570.172.08", library="570.172.08", cuda="12.8")


def line(known, nvml=None, node=None, t=1.0):
    nvml = NvmlSeen(source="ok") if nvml is None else nvml
    (tick,) = attribute(t, "n1", nvml, HostSeen(source="ok"), known, node)
    return tick


def said(facts):
    return NodeSeen(source="ok", facts=facts)


def test_what_nvml_says_joins_what_the_node_says_whichever_comes_first():
    known = Known()
    assert line(known, NvmlSeen(source="ok", facts=VERSIONS)).node is None, "it waits for the rest"
    tick = line(known, node=said(NodeFacts(memory_bytes=1 << 30, hung=["adapter mlx5_0"])))
    assert tick.node == NodeFacts(
        driver="570.172.08", library="570.172.08", cuda="12.8", memory_bytes=1 << 30, hung=["adapter mlx5_0"]
    )
    assert known.node == tick.node


def test_the_module_that_is_loaded_is_the_driver_whatever_nvml_says():
    known = Known(versions=VERSIONS)
    assert line(known, node=said(NodeFacts(driver="575.57.08"))).node.driver == "575.57.08"


def test_a_driver_that_does_not_answer_any_more_takes_its_versions_along():
    known = Known(versions=VERSIONS)
    tick = line(known, NvmlSeen(source="dead", facts=NodeFacts(library="575.57.08")), said(NodeFacts()))
    assert (tick.node.driver, tick.node.library, tick.node.cuda) == (None, "575.57.08", None)


def test_versions_that_a_driver_which_hangs_has_not_told_for_long_are_not_known():
    known, hangs = Known(), NvmlSeen(source="late")
    line(known, NvmlSeen(source="ok", facts=VERSIONS))
    assert line(known, hangs, said(NodeFacts()), t=FACTS_S).node == VERSIONS
    assert line(known, hangs, said(NodeFacts()), t=2.0 + FACTS_S).node == NodeFacts()
