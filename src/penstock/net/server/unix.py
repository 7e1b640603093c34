"""Unix sockets: 0600 in a 0700 directory, and the peer's uid from the kernel, not from the peer."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from pathlib import Path
from typing import Final

# Linux `struct ucred {pid, uid, gid}`; macOS `struct xucred {version, uid, ...}` under SOL_LOCAL.
_UCRED: Final = struct.Struct("3i")
_XUCRED: Final = struct.Struct("=II")
_XUCRED_BYTES: Final = 76
_SOL_LOCAL: Final = 0
_LOCAL_PEERCRED: Final = 1


def listen_unix(path: Path, *, backlog: int = 128) -> socket.socket:
    """Bind and listen on a private Unix socket; a socket left over by a dead process is replaced.

    Raises PermissionError when the directory is open to others and OSError(EADDRINUSE) when somebody listens there.
    """
    _private_directory(path.parent)
    _remove_stale(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode has to be right from the first instant, not a chmod later.
    old_mask = os.umask(0o177)
    try:
        server.bind(str(path))
        server.listen(backlog)
    except OSError:
        server.close()
        raise
    finally:
        os.umask(old_mask)
    server.setblocking(False)
    return server


def _private_directory(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = directory.stat()
    if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise PermissionError(errno.EPERM, f"{directory} must belong to this user and be closed to others (mode 0700)")


def _remove_stale(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # On a Unix socket connect() answers at once: accepted, refused, or a full backlog (somebody is there).
        probe.setblocking(False)
        if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, f"somebody already listens on {path}")
    path.unlink(missing_ok=True)


def remove_socket(path: Path, inode: int) -> None:
    """Remove our socket's name, unless somebody else has put theirs there meanwhile."""
    try:
        if path.lstat().st_ino == inode:
            path.unlink()
    except FileNotFoundError:
        return


def peer_uid(sock: socket.socket) -> int | None:
    """Return the uid of the process at the other end of a Unix socket; None for other families."""
    if sock.family != socket.AF_UNIX:
        return None
    if sys.platform == "darwin":
        raw = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
        return int(_XUCRED.unpack_from(raw)[1])
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(raw)[1])
