"""`sluice passwd`: change users in a file of `saslUsers`, which has salted verifiers instead of passwords."""

import argparse
import contextlib
import errno
import fcntl
import getpass
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence

from sluice.router.sasl import users
from sluice.router.sasl.mechanism import MAX_PASSWORD
from sluice.router.sasl.saslprep import PrepareError, prepare
from sluice.router.sasl.users import Users, UsersError
from sluice.router.sasl.verifiers import DEFAULT_ITERATIONS, HASHES, LEAST_ITERATIONS, MOST_ITERATIONS, make

DESCRIPTION = (
    "Set the password of a user in a saslUsers file, or delete the user. The password is read from the terminal, or is "
    "the first line of the standard input. A missing file is created. Routers that use the file notice the change."
)


def main(words: Sequence[str] | None = None, program: str = "sluice passwd") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    try:
        name = users.checked_name(options.user)
        if options.delete:
            _change(options.file, lambda old: old.without_user(name), must_exist=True)
        else:
            mechanisms = _mechanisms(options.mechanisms)
            password = _password()
            verifiers = [make(each, password, options.iterations) for each in mechanisms]
            _change(options.file, lambda old: old.with_user(name, verifiers))
    except KeyError:
        return _fail(program, f"{options.file}: there is no user {options.user!r}")
    except UsersError as error:
        return _fail(program, f"{options.file}: {error}")
    except (ValueError, PrepareError) as error:
        return _fail(program, str(error))
    except OSError as error:
        return _fail(program, f"{error.filename or options.file}: {error.strerror}")
    return 0


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog=program, description=DESCRIPTION)
    made.add_argument("file", metavar="FILE", help="file of users")
    made.add_argument("user", metavar="USER", help="name of the user")
    made.add_argument("--delete", action="store_true", help="delete the user")
    made.add_argument(
        "--mechanisms",
        metavar="NAMES",
        default=" ".join(HASHES),
        help="SCRAM mechanisms for the user's logins, separated by blanks (%(default)s); PLAIN always works",
    )
    made.add_argument(
        "--iterations", metavar="N", type=_iterations, default=DEFAULT_ITERATIONS, help="hash iterations (%(default)s)"
    )
    return made


def _iterations(text: str) -> int:
    number = int(text)
    if not LEAST_ITERATIONS <= number <= MOST_ITERATIONS:
        raise argparse.ArgumentTypeError(f"must be {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
    return number


def _fail(program: str, text: str) -> int:
    print(f"{program}: {text}", file=sys.stderr)
    return 1


def _mechanisms(text: str) -> list[str]:
    """Parse the option --mechanisms. Raises ValueError."""
    names = text.replace(",", " ").split()
    unknown = [name for name in names if name not in HASHES]
    if unknown or not names:
        raise ValueError(f"mechanisms must be among {' '.join(HASHES)}")
    return list(dict.fromkeys(names))


def _password() -> str:
    """Read the password and return it prepared (`saslprep`). Raises ValueError."""
    if sys.stdin.isatty():
        written = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != written:
            raise ValueError("the passwords differ")
    else:
        try:
            written = sys.stdin.readline().rstrip("\r\n")
        except OSError as error:
            raise ValueError(f"the password cannot be read: {error.strerror}") from None
    if not written:
        raise ValueError("the password is empty")
    if len(written.encode("utf-8", "surrogateescape")) > MAX_PASSWORD:
        raise ValueError(f"the password has more than {MAX_PASSWORD} octets")
    try:
        return prepare(written, query=False)
    except PrepareError as error:
        raise ValueError(f"the password cannot be used: {error}") from None


def _change(path: str, change: Callable[[Users], Users], *, must_exist: bool = False) -> None:
    """Apply a change to the file and replace it atomically. A symbolic link is followed and kept.

    Raises UsersError, OSError, KeyError.
    """
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    with _locked(folder):
        try:
            old, status = users.read(path), os.stat(path)
        except FileNotFoundError:
            if must_exist:
                raise
            old, status = Users({}), None
        text = change(old).text()
        descriptor, new = tempfile.mkstemp(dir=folder, prefix=".sluice-passwd-")  # unreadable for other users
        try:
            with os.fdopen(descriptor, "w") as file:
                if status is not None:
                    os.fchmod(file.fileno(), status.st_mode & 0o7777)
                    _keep_owner(file.fileno(), status)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except BaseException:
            os.unlink(new)
            raise


def _keep_owner(descriptor: int, status: os.stat_result) -> None:
    """Give the new file the owner of the old one, if permitted, because the router has to read the file."""
    mine = os.fstat(descriptor)
    if (mine.st_uid, mine.st_gid) == (status.st_uid, status.st_gid):
        return
    try:
        os.fchown(descriptor, status.st_uid, status.st_gid)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock a folder, so that its files are changed by one process at a time. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
