"""What programs read of the world and set in it: the clock, the environment, files, what the operating system draws.

A graph cannot read it as the program did while it was captured, and no guard can check it: so it is said, at the line
that reads or sets, and stands in the report of the capture. What threads of its own do is not seen: it starts none.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.capture.outside.overheard import Heard, hear, heard, overhear, overhear_class, stand
from graphwright.capture.state.running import RUN
from graphwright.capture.state.tensor_proxy import TensorProxy
from graphwright.source import CallSite, is_installed

if TYPE_CHECKING:
    from graphwright.capture.state.protocol import TypedCapture

# The functions that read the world, by the module that has them. Those of modules that nobody has imported are no
# matter.
WORLD = {
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time "
    "thread_time_ns clock_gettime clock_gettime_ns localtime gmtime ctime asctime strftime",
    "os": "getcwd getcwdb getlogin getpid getppid getuid geteuid getgid getegid getgroups uname cpu_count times "
    "getloadavg sched_getaffinity get_terminal_size urandom getrandom listdir scandir walk stat lstat access popen "
    "readlink",
    "posixpath": "exists lexists isfile isdir islink getsize getmtime getatime getctime expanduser expandvars",
    "ntpath": "exists lexists isfile isdir islink getsize getmtime getatime getctime expanduser expandvars",
    "uuid": "uuid1 uuid4 getnode",
    "secrets": "token_bytes token_hex token_urlsafe choice randbelow randbits",
    "platform": "architecture machine node platform processor release system uname version",
    "socket": "gethostname getfqdn gethostbyname getaddrinfo create_connection",
    "getpass": "getuser getpass",
    "locale": "getlocale getpreferredencoding",
    "builtins": "open input",
    "io": "open",
    "glob": "glob iglob",
    "shutil": "which disk_usage",
    "subprocess": "run call check_call check_output getoutput getstatusoutput",
    "tempfile": "mkstemp mkdtemp mktemp gettempdir",
    "urllib.request": "urlopen urlretrieve",
    "torch": "load",
    "torch.hub": "load load_state_dict_from_url",
    "numpy": "load loadtxt genfromtxt fromfile",
}
# Classes of whose objects, or methods, the same is true.
_CLASSES = {
    "datetime": {"datetime": "now utcnow today", "date": "today"},
    "torch.profiler": {"profile": ""}, "torch.autograd.profiler": {"profile": ""},
}  # fmt: skip
# The functions that set something in it.
SETTING = {
    "warnings": "simplefilter filterwarnings resetwarnings",
    "sys": "setrecursionlimit setswitchinterval",
    "os": "chdir umask putenv unsetenv mkdir makedirs remove unlink rename replace rmdir symlink link system kill",
    "shutil": "copy copy2 copyfile copytree move rmtree",
    "logging": "basicConfig disable captureWarnings",
    "gc": "enable disable set_threshold",
    "signal": "signal alarm setitimer",
    "numpy": "set_printoptions",
    "torch": "set_printoptions",
}
# Through which modules of Python's library a program starts threads.
_STARTERS = ("threading", "thread", "_base", "pool", "context", "__init__", "threads", "base_events", "runners")
_COMPUTE = {"localtime": 1, "gmtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}  # with so many arguments
# Through which modules of Python's library a program calls them; a file has the last part of a module's name.
_PATHS = ("pathlib", "_local", "_abc")  # the last two in Python 3.13
_CARRIERS = {
    "open": (*_PATHS, "gzip", "bz2", "lzma", "zipfile", "tarfile", "fileinput", "configparser", "shelve"),
    "stat": _PATHS, "lstat": _PATHS, "listdir": _PATHS, "scandir": _PATHS,
    "encodekey": ("os", "_collections_abc"),
}  # fmt: skip
_watched: set[str] = set()


def watch_world() -> bool:
    """Have what reads the world heard of, of all modules that are there now; tell whether there are new ones."""
    names = {*WORLD, *_CLASSES, *SETTING, "pathlib", "threading", "torch.utils.dlpack"}
    new = [name for name in sorted(names) if name in sys.modules and name not in _watched]
    for name in new:
        module = sys.modules[name]
        for function in WORLD.get(name, "").split():
            overhear(module, (function,), _read, _CARRIERS.get(function, ()))
        overhear(module, SETTING.get(name, "").split(), _set)
        for kind, methods in _CLASSES.get(name, {}).items():
            overhear_class(module, kind, None if methods else _read, dict.fromkeys(methods.split(), _read))
        if name.startswith("torch"):
            overhear(module, ("to_dlpack",), _handed_over)
        if name == "threading":
            overhear(module, ("_start_new_thread", "_start_joinable_thread"), _started, _STARTERS)
        if name == "os":
            names = vars(module.environ)
            stand(names, "encodekey", names["encodekey"], heard(names["encodekey"], _variable, _CARRIERS["encodekey"]))
        if name == "pathlib":
            _watch_accessor(getattr(module, "_normal_accessor", None))
    _watched.update(new)
    return bool(new)


def _watch_accessor(accessor: object) -> None:
    """Have functions of `os` and `io` heard of that paths call as those of an object, as in Python 3.10."""
    for name, carriers in _CARRIERS.items():
        original = getattr(accessor, name, None)
        if "pathlib" in carriers and original is not None and hear(original) is not original:
            vars(accessor)[name] = original  # as its class has it
            stand(vars(accessor), name, original, hear(original))


def say_read(recorder: TypedCapture, frame: FrameType, what: str) -> None:
    """Say that the program reads something whose value is the capture's for ever."""
    at = CallSite(frame.f_code, frame.f_lasti, recorder.scope).line()
    recorder.ledger.say(f"{what} was read: its value is the capture's", at, frame)


def say_called(recorder: TypedCapture, frame: FrameType, what: str) -> None:
    """Say that the program calls something for what it does, which the captured program does not."""
    at = CallSite(frame.f_code, frame.f_lasti, recorder.scope).line()
    recorder.ledger.say(f"{what}() is called: the captured program does not call it", at, frame)


def _read(call: Heard) -> Any:
    function = call.function
    if len(call.args) < _COMPUTE.get(function.__name__, 10**6):
        owner = getattr(function, "__self__", None)
        home = f"{owner.__module__}.{owner.__name__}" if isinstance(owner, type) else function.__module__
        home = _HOMES.get(home, home)
        say_read(call.recorder, call.frame, f"{home}.{function.__name__}()" if home else f"{function.__name__}()")
    with torch._C.DisableTorchFunction():  # a tensor that it gives is a constant like any other
        return call.original()


def _set(call: Heard) -> Any:
    """Something is set: in a `with warnings.catch_warnings()` of the program, for as long as that lasts."""
    module = call.function.__module__
    home = _HOMES.get(module, module)
    if home != "warnings" or not _is_caught(call.frame):
        say_called(call.recorder, call.frame, f"{home}.{call.function.__name__}")
    return call.original()


def _is_caught(frame: FrameType | None) -> bool:
    """Tell whether one of the running functions is one that catches warnings."""
    while frame is not None and frame.f_code is not RUN:
        if "catch_warnings" in frame.f_code.co_names:
            return True
        frame = frame.f_back
    return False


def _started(call: Heard) -> Any:
    if is_installed(call.frame.f_code.co_filename):  # as bars of progress do
        return call.original()
    raise call.refused("the program starts a thread: a graph has none")


def _handed_over(call: Heard) -> Any:
    """The memory of a tensor goes to another library, by a function that tells nobody."""
    for given in call.args:
        if call.recorder.typed is not None and isinstance(given, TensorProxy):
            return call.recorder.questions.refusals.refuse_data(given, call.function.__name__)
    return call.original()


_HOMES = {
    "posix": "os", "nt": "os", **dict.fromkeys(("genericpath", "posixpath", "ntpath"), "os.path"),
    **dict.fromkeys(("_io", "io", "builtins"), ""), "torch.serialization": "torch", "torch._tensor_str": "torch",
    "torch.profiler.profiler": "torch.profiler",
}  # fmt: skip


def _variable(call: Heard) -> Any:
    """A variable of the environment is looked up, or written: its name is encoded for that."""
    asked = sys._getframe(2).f_code.co_name
    recorder, at, variable = call.recorder, call.at(), f"os.environ[{call.args[0]!r}]"
    if asked in ("__setitem__", "__delitem__"):
        recorder.ledger.say(f"{variable} is written: the captured program does not", at, call.frame)
    elif recorder.log is None or ("os.environ", at) not in recorder.log.told:  # a line may read all of them
        say_read(recorder, call.frame, variable)
        if recorder.log is not None:
            recorder.log.told.add(("os.environ", at))
    return call.original()
