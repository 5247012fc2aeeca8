"""Trust in files and folders: check who may write them before their content is used, and limit reads."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from be_toolchain.errors import PreferenceError
from be_toolchain.machine.files import parse_toml, placed_file, user_file
from be_toolchain.machine.system import FolderFacts, System
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


SMALL, LARGE = 1 << 16, 1 << 26
"""The largest sizes in bytes of a file that a person writes by hand, and of a source, a record or a list."""

LARGEST = 1 << 31
"""The largest size in bytes of a file of code."""

_LEAST_PIECE = 1 << 14

Judge = Callable[[os.stat_result, int], str]
"""Function of a file's status and the user's id that returns the reason for distrust, such as `distrust_entry`."""


class NotRegularError(OSError):
    """A path leads to a pipe, a socket or a device."""


def open_regular(
    path: str | Path, most_bytes: int = LARGEST, *, judge: Judge | None = None, follows_link: bool = True
) -> BufferedReader:
    """Open a regular file, and judge the open file, which nobody can exchange.

    Parameters
    ----------
    path : str or Path
        The file.
    most_bytes : int
        The largest accepted size.
    judge : callable, optional
        Function that judges the owner and the mode before anything is read.
    follows_link : bool
        Whether a symbolic link is followed; False for files that only programs write.

    Raises
    ------
    OSError
        The file can't be opened or is not accepted. `strerror` is the reason, which follows "can't be read: ".
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # the open of a pipe would wait for its writer
    try:
        descriptor = os.open(path, flags if follows_link else flags | os.O_NOFOLLOW)
    except ValueError as error:  # raised for a NUL, and for a text that can't be the name of a file
        raise OSError(errno.EINVAL, f"it is not a path: {error}", str(path)) from None
    try:
        _require(os.fstat(descriptor), str(path), most_bytes, judge)
        return open(descriptor, "rb")  # noqa: PTH123 - by descriptor
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(
    path: str | Path, most_bytes: int = LARGEST, *, judge: Judge | None = None, follows_link: bool = True
) -> bytes:
    """Read a regular file, see `open_regular`; refuse a file that grows meanwhile."""
    with open_regular(path, most_bytes, judge=judge, follows_link=follows_link) as file:
        data = read_beginning(file, most_bytes + 1)
    if len(data) > most_bytes:
        raise _too_large(path, most_bytes)
    return data


def read_part(file: Traversable, most_bytes: int) -> bytes:
    """Read a file of a package, which may be a part of a zip; see `read_regular`."""
    if isinstance(file, Path):
        return read_regular(file, most_bytes)
    if not file.is_file():  # the error of a part of a zip has no text if the zip was opened by a descriptor
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file.name)
    with file.open("rb") as opened:
        data = opened.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise _too_large(file.name, most_bytes)
    return data


def read_beginning(file: BinaryIO, most_bytes: int) -> bytes:
    """Read the first bytes of an open file in pieces, since the kernel clears the buffer of a read of /proc/sys."""
    size, parts = os.fstat(file.fileno()).st_size, []
    while most_bytes > 0 and (part := file.read(min(most_bytes, max(size + 1, _LEAST_PIECE)))):
        parts.append(part)
        most_bytes -= len(part)
    return b"".join(parts)


def _require(status: os.stat_result, path: str, most_bytes: int, judge: Judge | None) -> None:
    if judge is not None and (problem := judge(status, os.geteuid())):
        raise PermissionError(errno.EPERM, f"it {problem}", path)  # a missing right to read is EACCES
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(errno.EINVAL, "it is not a regular file", path)
    if status.st_size > most_bytes:
        raise _too_large(path, most_bytes)


def _too_large(path: str | Path, most_bytes: int) -> OSError:
    size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
    return OSError(errno.EFBIG, f"it is larger than {size}", str(path))


def file_sha256(path: Path) -> str | None:
    """Hash a source; return None if it is missing or not a regular file, and an empty text if it is too large."""
    try:
        with open_regular(path, LARGE) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return "" if error.errno == errno.EFBIG else None


_ROOT_UID = 0
_STICKY_FOR_ALL = stat.S_ISVTX | stat.S_IWOTH
_LOADER_TOKENS = r"\$(?:\{(?:ORIGIN|LIB|PLATFORM)\}|(?:ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))"
"""Names that dlopen replaces in a path: https://man7.org/linux/man-pages/man8/ld.so.8.html, dynamic string tokens."""


def distrust(status: os.stat_result, uid: int, *, link: os.stat_result | None = None) -> str:
    """Return the reason why libraries are not loaded from a folder; empty if they are loaded.

    Parameters
    ----------
    status : os.stat_result
        The folder's status, links followed.
    uid : int
        The user's id.
    link : os.stat_result, optional
        The status of the symbolic link that leads to the folder.

    Returns
    -------
    str
        The text that follows the folder's name in a message.

    Examples
    --------
    >>> open_to_all = os.stat_result((0o40777, 0, 0, 1, 1000, 1000, 0, 0, 0, 0))
    >>> distrust(open_to_all, 1000)
    'can be written by other users (mode 777)'
    """
    if link is not None and not is_trusted_owner(link, uid):
        return distrust_entry(link, uid)
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    return "" if is_shared(status) and is_trusted_owner(status, uid) else distrust_entry(status, uid)


def distrust_entry(status: os.stat_result, uid: int) -> str:
    """Return the reason why one file, folder or link is not trusted; empty if it is trusted.

    Examples
    --------
    >>> distrust_entry(os.stat_result((0o120777, 0, 0, 1, 1001, 1001, 0, 0, 0, 0)), 1000)
    'is a symbolic link made by another user (uid 1001)'
    """
    problem = distrust_owner(status, uid)
    if problem or stat.S_ISLNK(status.st_mode) or not is_open(status, uid):
        return problem
    return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"


def distrust_owner(status: os.stat_result, uid: int) -> str:
    """Return the reason why the owner of a file or link is not trusted, regardless of the mode; else empty.

    Examples
    --------
    >>> distrust_owner(os.stat_result((0o100666, 0, 0, 1, 1001, 1001, 0, 0, 0, 0)), 1000)
    'belongs to another user (uid 1001)'
    """
    if is_trusted_owner(status, uid):
        return ""
    verb = "is a symbolic link made by" if stat.S_ISLNK(status.st_mode) else "belongs to"
    return f"{verb} another user (uid {status.st_uid})"


def distrust_secret(status: os.stat_result, uid: int) -> str:
    """Return the reason why a user's file is not secret, by the rules of ssh; empty if it is secret.

    Examples
    --------
    >>> distrust_secret(os.stat_result((0o100644, 0, 0, 1, 1000, 1000, 0, 0, 0, 0)), 1000)
    'can be read by other users (mode 644)'
    """
    if status.st_uid != uid or not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return ""
    return f"can be read by other users (mode {stat.S_IMODE(status.st_mode):o})"


def distrusted_places(trail: Iterable[tuple[str, os.stat_result]], uid: int, *homes: str) -> Iterator[tuple[str, str]]:
    """Yield the places on the way to a file, and the file, that another user could exchange, each with the reason.

    Parameters
    ----------
    trail : iterable of (path, os.stat_result)
        Each folder from the root on, each link on the way, and the file. The owner of one of them, and everybody who
        may write to it, could put another file there.
    uid : int
        The user's id.
    *homes : str
        Paths of the user's home folder. The folders above it are the administrator's choice: whoever could exchange
        one of them already controls all files of the user.

    Examples
    --------
    >>> theirs = os.stat_result((0o40755, 0, 0, 1, 1001, 1001, 0, 0, 0, 0))
    >>> list(distrusted_places([("/data/project", theirs)], 1000))
    [('/data/project', 'belongs to another user (uid 1001)')]
    """
    sticky = False
    for path, status in trail:
        if any(home.startswith(f"{path.rstrip('/')}/") for home in homes):
            continue
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder:
            sticky = bool(status.st_mode & stat.S_ISVTX) and is_open(status, uid)
        if not is_trusted_owner(status, uid):
            yield path, distrust_entry(status, uid)
        elif is_folder and sticky:
            continue
        elif sticky and not stat.S_ISLNK(status.st_mode):
            # Only its owner can replace it, but anybody who can move a file of the user's could have put it there.
            yield path, "is in a folder that other users may write to; one of your own is safe"
        elif problem := distrust_entry(status, uid):
            yield path, problem


def is_trusted_owner(status: os.stat_result, uid: int) -> bool:
    """Return whether a file belongs to the user or to root."""
    return status.st_uid in (uid, _ROOT_UID)


def is_open(status: os.stat_result, uid: int) -> bool:
    """Return whether others than the user may write; a private group of the user's does not count as others."""
    return _others_may(status, uid, stat.S_IWOTH, stat.S_IWGRP)


def is_closed(status: os.stat_result, uid: int) -> bool:
    """Return whether only the user may enter a folder, and so reach the files below it."""
    return not _others_may(status, uid, stat.S_IXOTH, stat.S_IXGRP)


def _others_may(status: os.stat_result, uid: int, bit: int, group_bit: int) -> bool:
    """Return whether others than the user have a permission, given as its bit for all and its bit for the group."""
    private_group = status.st_gid == status.st_uid == uid != _ROOT_UID
    return bool(status.st_mode & (bit if private_group else bit | group_bit))


def is_shared(status: os.stat_result) -> bool:
    """Return whether a folder is for all users, as the temporary folder is: each user has a folder in it."""
    return status.st_mode & _STICKY_FOR_ALL == _STICKY_FOR_ALL


def own_part(folder: str, uid: int) -> str:
    """Return the user's folder in a shared one."""
    return f"{folder}/user-{uid}"


def distrust_own_part(status: os.stat_result, uid: int) -> str:
    """Return why libraries are not loaded from the user's part of a shared folder, links not followed, else empty."""
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != uid:
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


def against_libraries(facts: FolderFacts) -> Iterator[str]:
    """Yield the reasons against keeping libraries in a folder; each text follows the folder's name in a message.

    Examples
    --------
    >>> from pathlib import Path
    >>> from be_toolchain.machine.system import FolderFacts
    >>> list(against_libraries(FolderFacts(path=Path("/a/b"), standing=Path("/a"), writable=False)))
    ["can't be made: /a can't be written"]
    """
    path = str(facts.path)
    token = re.search(_LOADER_TOKENS, path) if "$" in path else None  # compiled only where a path may have one
    if token is not None:
        yield f"holds {token[0]}, which the dynamic loader replaces"
    if facts.obstacle:
        yield facts.obstacle
    else:
        yield from against_building(facts)


def against_building(facts: FolderFacts) -> Iterator[str]:
    """Yield the reasons against writing and running files in a folder, regardless of other users' rights."""
    if not facts.writable:
        is_there = facts.standing == facts.path
        yield "can't be written" if is_there else f"can't be made: {facts.standing} can't be written"
    if not facts.executable:
        yield "is mounted noexec: libraries built there can't be loaded"


ENV_SAFE = "BE_SAFE_FOLDERS"
"""The variable that lists safe folders, separated by ``:``; ``*`` is every folder, ``/folder/*`` every one below it."""


def are_safe(system: System, folders: tuple[Path, ...]) -> bool:
    """Return whether the user vouches for all of some folders, whose paths have no links.

    Raises
    ------
    PreferenceError
        The user's own file is not valid.
    """
    entries = (*_listed(system), *read_own_settings(system).safe)
    return all(any(_covers(system, entry, folder) for entry in entries) for folder in folders)


def how_to_vouch(system: System, folders: tuple[Path, ...]) -> str:
    """Return the hint that names the settings for trusting a project's settings file in some folders."""
    file = placed_file(system.environ)
    texts = list(dict.fromkeys(map(str, folders)))
    every = os.pathsep.join(dict.fromkeys((*_listed(system), *texts)))
    ways = [f"export {ENV_SAFE}={shlex.quote(every)}"] if not any(os.pathsep in text for text in texts) else []
    if file is not None:
        standing = next((place for place in (file, *file.parents) if system.stat(place)), file)
        if not ways or not system.distrust(standing):  # otherwise the file is not, or would not be, trusted
            own = dict.fromkeys((*read_own_settings(system).safe, *texts))
            ways.append(f"safe = {json.dumps(list(own), ensure_ascii=False)} in {file}")
    return f"if you trust everybody who can write there: {', or '.join(ways)}"


def _listed(system: System) -> tuple[str, ...]:
    """Return the entries of the variable."""
    return tuple(filter(None, system.environ.get(ENV_SAFE, "").split(os.pathsep)))


def _covers(system: System, entry: str, folder: Path) -> bool:
    """Return whether an entry covers a folder."""
    if entry == "*":
        return True
    if entry == "~" or entry.startswith("~/"):
        home = system.environ.get("HOME", "")
        entry = home and home + entry[1:]  # without a home folder, "~/*" must not become "/*"
    if not entry.startswith("/"):
        return False
    if entry.endswith("/*"):
        return folder.is_relative_to(system.realpath(Path(entry[:-1])))
    return folder == system.realpath(Path(entry))


_MOST_LINKS = 40
_ALL_IDS = (1 << 32) - 1
"""The number of users in the machine's first namespace."""


def trail(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every folder and link that leads to an absolute path, from the root on, and the path itself."""
    yield "/", os.lstat("/")
    place, links, left = "", 0, path.split("/")[::-1]
    while left:
        name = left.pop()
        here = f"{place}/{name}"
        if name == "..":
            place = place.rpartition("/")[0]
        if name in ("", ".", ".."):
            continue
        status = os.lstat(here)
        yield here, status
        if not stat.S_ISLNK(status.st_mode):
            place = here
            continue
        target = os.readlink(here)  # noqa: PTH115 - the same
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        place = "" if target.startswith("/") else place
        left += target.split("/")[::-1]


def distrusted_on_way(path: Path, *, to_it: bool = False) -> tuple[tuple[str, str], ...]:
    """List the places on the way to a path that another user could exchange, each with the reason.

    Parameters
    ----------
    path : Path
        The path, which is judged too.
    to_it : bool
        True leaves out the path itself, for which the caller has other rules.

    Raises
    ------
    OSError
        The path does not exist, or can't be examined.
    """
    uid = os.geteuid()
    places = tuple(trail(str(path)))
    places = places[:-1] if to_it else places
    if next(distrusted_places(places, uid), None) is None:
        return ()
    # This is seldom needed, and the user database may be on the network.
    home, unknown = account_home(), _unmapped_owner()
    known = []
    for place, status in places:
        is_roots = status.st_uid == unknown and stat.S_ISDIR(status.st_mode)
        known.append((place, os.stat_result((*status[:4], 0, *status[5:10])) if is_roots else status))
    return tuple(distrusted_places(known, uid, *({home, os.path.realpath(home)} if home else ())))


def account_home() -> str:
    """Return the home folder of this process's user from the user database; empty if it has no such user."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _unmapped_owner() -> int | None:
    """Return the id that stands for all owners outside this user namespace; None if there are none.

    In an unprivileged container the machine's root is one of them: ``/`` and ``/tmp`` seem to be nobody's. See
    https://man7.org/linux/man-pages/man7/user_namespaces.7.html
    """
    try:
        lengths = map(int, Path("/proc/self/uid_map").read_bytes().split()[2::3])
        return None if sum(lengths) >= _ALL_IDS else int(Path("/proc/sys/kernel/overflowuid").read_bytes())
    except (OSError, ValueError):
        return None


def judge_folder_at(system: System, folder: Path, standing: Path) -> FolderFacts:
    """Judge a folder for libraries, and every place on the way to it.

    Parameters
    ----------
    system : System
        The machine, for the folders that the user vouches for.
    folder, standing : Path
        The folder, and the folder itself or its nearest existing parent.

    Returns
    -------
    FolderFacts
        The obstacle, the user's own part, and the doubtful places; the other facts are left to the caller.
    """
    problem, own = _judge_alone(folder, standing)
    facts = FolderFacts(folder, standing, obstacle=problem, own_part=own)
    if problem:
        return facts
    try:
        found = distrusted_on_way(standing, to_it=standing == folder)
    except OSError:
        return facts
    doubtful = [(Path(place), reason) for place, reason in found]
    doubtful = [row for row in doubtful if not _is_sheltered(row[0]) and not _is_vouched(system, row[0])]
    if not doubtful:
        return facts
    problem = f"can't be trusted: {doubtful[0][0]} {doubtful[0][1]}"
    return facts._replace(obstacle=problem, doubtful=tuple(place for place, _ in doubtful))


def _is_sheltered(place: Path) -> bool:
    """Return whether a place that all users may write to is below a folder that only this user can enter."""
    uid = os.geteuid()
    return is_trusted_owner(place.lstat(), uid) and any(is_closed(above.stat(), uid) for above in place.parents)


def _is_vouched(system: System, place: Path) -> bool:
    """Return whether the user vouches for a place; an invalid file of settings vouches for nothing."""
    try:
        return are_safe(system, (place,))
    except PreferenceError:
        return False


def _judge_alone(folder: Path, standing: Path) -> tuple[str, Path | None]:
    """Return the reason why a folder itself can't be used, or an empty text, and the user's part of a shared folder."""
    if standing != folder or not folder.is_absolute():
        return _unmade(folder, standing), None
    uid = os.geteuid()
    try:
        link, status = folder.lstat(), folder.stat()
    except OSError:
        return "", None
    problem = distrust(status, uid, link=link if stat.S_ISLNK(link.st_mode) else None)
    if problem or not is_shared(status):
        return problem, None
    own = Path(own_part(str(folder), uid))
    try:
        problem = distrust_own_part(own.lstat(), uid)
    except OSError:
        return "", own
    return problem and f"is shared, and {own} in it {problem}", own


def _unmade(folder: Path, standing: Path) -> str:
    """Return the reason why a missing folder can't be made, judged by the existing folders and links."""
    if not folder.is_absolute():
        unknown = "home" if folder.parts[:1] == ("~",) else "working"
        return f"is not absolute: the {unknown} folder is unknown"
    broken = next((path for path in (folder, *folder.parents) if os.path.islink(path)), standing)  # noqa: PTH114 - Path.is_symlink raises below a folder that can't be read
    if broken != standing and broken.is_relative_to(standing):
        return f"can't be made: {broken} is a symbolic link that leads nowhere"
    return "" if standing.is_dir() else f"can't be made: {standing} is not a folder"


SAFE = "safe"
"""The key with folders of other users in which a project's settings file is trusted."""

REMOTE_CACHE = "remote-cache"
REMOTE_CACHE_KEY = "remote-cache-public-key"


class OwnSettings(NamedTuple):
    """The settings in the user's own file.

    Parameters
    ----------
    path : Path, optional
        The file; None if it is missing or not trusted.
    safe : tuple of str
        Folders of other users in which project settings files are trusted, see `ENV_SAFE`.
    remote_cache, remote_cache_key : str
        The URL of a remote cache, and the public keys that its entries are signed with; empty without them.
    """

    path: Path | None = None
    safe: tuple[str, ...] = ()
    remote_cache: str = ""
    remote_cache_key: str = ""


def read_own_settings(system: System) -> OwnSettings:
    """Read the user's own file; ignore a file that others could have written.

    Raises
    ------
    PreferenceError
        The file is not TOML, has an unknown key, or a value of the wrong type.
    """
    path = user_file(system.environ)
    if path is None or not system.is_file(path) or system.distrust(path):
        return OwnSettings()
    try:
        table: dict[str, Any] = parse_toml(system.read_text(path) or "")
    except ValueError as error:
        raise PreferenceError(f"{path} is not TOML: {error}", hints=("correct the file",)) from None
    keys = (SAFE, REMOTE_CACHE, REMOTE_CACHE_KEY)
    unknown = [key for key in table if key not in keys]
    if unknown:
        hint = f"its keys are {', '.join(keys)}; the other keys belong in a project's settings file"
        raise PreferenceError(f"{path} has unknown keys: {', '.join(unknown)}", hints=(hint,))
    safe = table.get(SAFE, [])
    if not isinstance(safe, list) or not all(isinstance(entry, str) for entry in safe):
        raise PreferenceError(f"{SAFE} in {path} is {safe!r}", hints=("it must be a list of folders",))
    for key in keys[1:]:
        if not isinstance(table.get(key, ""), str):
            raise PreferenceError(f"{key} in {path} is {table[key]!r}", hints=("it must be a string",))
    return OwnSettings(path, tuple(safe), table.get(REMOTE_CACHE, "").strip(), table.get(REMOTE_CACHE_KEY, "").strip())
