"""Run a program as another user: a child's way down from root, for nothing else.

    python -I as_user.py [--root] USER PROGRAM [ARGUMENT ...]

Standard library only. The user's groups are left behind, too; nothing set-uid helps the program up again.
It is not run where others than root and the user could have written it, nor as root unless told so. Exit
status 125: it was not run, and stderr says why.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
import sys

NOT_RUN = 125
PR_SET_NO_NEW_PRIVS = 38


def refuse(why: str) -> None:
    print(why, file=sys.stderr)
    sys.exit(NOT_RUN)


def entry_of(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        refuse(f"there is no user {user}")
        raise


def check(program: str, uid: int) -> None:
    """Refuse one that somebody else could have written, or put in its place."""
    try:
        held = os.stat(program)
    except OSError as e:
        refuse(f"{program}: {e.strerror}")
        return
    if not stat.S_ISREG(held.st_mode) or not os.path.isabs(program):
        refuse(f"{program}: not the absolute path of a file")
    if held.st_uid not in (0, uid) or held.st_mode & 0o022:
        refuse(f"{program}: others than root and its user could have written it")
    folder = os.path.dirname(os.path.realpath(program))
    while True:
        held = os.stat(folder)
        sticky = held.st_mode & stat.S_ISVTX
        if held.st_uid not in (0, uid) or (held.st_mode & 0o022 and not sticky):
            refuse(f"{program}: others than root and its user can write to {folder}")
        if folder == "/":
            return
        folder = os.path.dirname(folder)


def main() -> None:
    words = sys.argv[1:]
    root = words[:1] == ["--root"]
    user, *argv = words[1:] if root else words
    entry = entry_of(user)
    if entry.pw_uid == 0 and not root:
        refuse("not run as root: name another user, or say allow_root: yes")
    check(argv[0], entry.pw_uid)
    try:
        os.setgroups([entry.pw_gid])
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        if ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            refuse("prctl: no_new_privs is refused")
        os.chdir("/")
        os.umask(0o077)
        env = {**os.environ, "HOME": "/", "USER": entry.pw_name, "LOGNAME": entry.pw_name}
        os.execve(argv[0], argv, env)  # noqa: S606 no shell, on purpose
    except OSError as e:
        refuse(f"{argv[0]}: {e.strerror}")


if __name__ == "__main__":
    main()
