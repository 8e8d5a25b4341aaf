"""/proc/net/tcp: who listens where."""

from hypothesis import given
from hypothesis import strategies as st

from ladon_slurm.parse.sockets import Listener, listeners, socket_inode

# 28028 is 6D7C. Lines as Linux 6.x prints them.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 4711 1 0000 100 0 0 10 0
   1: 00000000:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000 100 0 0 10 0
   2: 0200007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 4713 1 0000 100 0 0 10 0
   3: 0100007F:6D7C 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1001        0 4714 1 0000 20 4 30 10 -1
   4: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 4715 1 0000 100 0 0 10 0
"""
TCP6 = """\
   0: 00000000000000000000000001000000:6D7C 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 99 1 00 100 0 0 10 0
"""


def test_listeners_on_loopback_and_nothing_else():
    assert list(listeners(TCP, 28028)) == [Listener("127.0.0.1", 4711, 1001), Listener("127.0.0.1", 4712, 0)]
    assert list(listeners(TCP6, 28028)) == [Listener("::1", 99, 1001)]
    assert list(listeners(TCP, 28029)) == []


def test_a_socket_is_known_by_its_inode():
    assert socket_inode("socket:[4711]") == 4711
    for other in ("pipe:[4711]", "/tmp/socket:[4711]", "socket:[]", "socket:[x]", "socket:[1", "4711"):
        assert socket_inode(other) is None


@given(st.integers(0, len(TCP)))
def test_a_table_that_is_cut_off(at):
    whole = list(listeners(TCP, 28028))
    assert all(one in whole or one.inode < 4712 for one in listeners(TCP[:at], 28028))


@given(st.text(max_size=300), st.integers(1, 65535))
def test_any_text(text, port):
    list(listeners(text, port))
    socket_inode(text)
