"""Ladon's own commands against the daemons of a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from testbed import parts
from testbed.client import PATIENCE_S, Client, Done
from testbed.node import Node


class LadonClient(Client):
    """Slurm's commands, and Ladon's."""

    dir: Path
    nodes: dict[str, Node]

    def ladon(self, node: str, verb: str, *args: str, user: str | None = None) -> Done:
        """`ladon VERB --config … ARGS`, for the daemon of a node."""
        return self.run([*parts.ladon(), verb, "--config", str(self.nodes[node].config), *args], user)

    def status(self, node: str) -> dict[str, Any]:
        """What `ladon status --json` shows of a node, as soon as its daemon answers."""
        return self.await_(lambda: self.status_now(node), what=f"an answer of ladond on {node}")

    def status_now(self, node: str) -> dict[str, Any]:
        """The same; {} while the daemon does not answer.

        Asked over the socket itself: tests look often, and a process per look would be the load that
        makes the daemon late.
        """
        from ladon_slurm.control import ControlError, ask  # the shell command does without the package

        try:
            answer: dict[str, Any] = json.loads(
                ask(self.nodes[node].run_dir / "control.sock", {"ask": "status"}, PATIENCE_S)
            )
        except ControlError:
            return {}
        return answer

    def verdict(self, step: str) -> str | None:
        """What the daemons say of step "42.0" or "42.batch"; None while none knows it."""
        for node in self.nodes:
            for row in self.status_now(node).get("steps", []):
                verdict = row.get("verdict") or {}
                if verdict.get("step") == step:
                    return str(verdict["verdict"])
        return None

    def await_verdict(self, step: str, verdict: str, timeout: float = PATIENCE_S) -> None:
        """Wait until a daemon says so."""
        seen: list[str | None] = []

        def said() -> bool:
            seen.append(self.verdict(step))
            return seen[-1] == verdict

        self.await_(said, timeout, f"{step} {verdict}")

    def signals(self, node: str, step: str) -> list[int]:
        """Signals that reached a step, in their order, by slurmd's own log: Slurm's count, not the journal's.

        scancel sends a signal straight to slurmd; KILL of a step ends it by another request.
        """
        log = (self.dir / "log" / f"slurmd-{node}.log").read_text(errors="replace")
        step_id = re.escape(step)
        found = re.findall(
            rf"(_handle_terminate) for StepId={step_id} |"
            rf"_handle_signal_container for StepId={step_id} uid=\d+ signal=(\d\d?)\b",
            log,
        )
        return [9 if ended else int(number) for ended, number in found]
