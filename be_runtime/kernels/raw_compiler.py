"""Raw kernels: their names and parameters in source text, and their compilation by NVRTC or nvcc."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile.inputs import LookedAt
from be_runtime.compile.plan import SOURCES, BuildPlan, Edge, GeneratedFile
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import BuildError, EntryPointNotFoundError, SpecError
from be_runtime.kernels import nvrtc
from be_runtime.kernels.launcher import (
    Compiled,
    Kernel,
    KernelImage,
    KernelParam,
    Origin,
    obtain_kernel,
    ptx_arch,
)
from be_runtime.load.identity import Field, own_code_digest, own_key
from be_runtime.load.native_library import run_plan
from be_runtime.load.registry import Session
from be_runtime.request.options import RELAXED_CONSTEXPR, with_relaxed_constexpr
from be_runtime.signature import SourceText
from be_runtime.signature.cpp.functions import Function, parse_function
from be_runtime.signature.cpp.lexer import significant
from be_runtime.signature.cpp.outline import CppCode, DeclarationReader, outline
from be_runtime.signature.cpp.params import CPP_SCALARS, CppParam, Shape, canonical_type
from be_runtime.signature.cpp.program import check_size
from be_runtime.store.cache import BuildOutput
from be_runtime.store.examine import record_file
from be_runtime.store.keys import CacheKey, make_key
from be_runtime.store.manifest import shadowing_paths
from be_toolchain import ToolchainRequest, probe_devices, resolve
from be_toolchain.arch import Arch
from be_toolchain.errors import CudaNotFoundError, ToolchainError
from be_toolchain.find.record import ObservingSystem
from be_toolchain.known.layouts import COMPILE_VARIABLES
from be_toolchain.machine.system import System
from be_toolchain.values import Nvcc, Toolchain, check_archs

_EXPRESSION = re.compile(r"\s*((?:::\s*)?(?:\w+\s*::\s*)*)(\w+)\s*(?:<(.*)>)?\s*", re.DOTALL)
_BEFORE_PARENTHESIS = re.compile(r"\b(\w++)\s*+\(")

_LARGEST_SCALAR = 8
"""Bytes of the largest scalar of the launcher."""

_DROPPED = frozenset({"const", "volatile", "__restrict__", "__restrict", "struct", "typename"})
_ENTRY = re.compile(rb"\.text\.([\w$]+)\0")
_LENGTH = re.compile(r"\d+")
_PRE_INCLUDE = ("-include", "--pre-include")

_PLACE = re.compile(r"(-I|--include-path|-isystem|--system-include|-include|--pre-include)(=?)(/[^,]*)?")
"""An option that names a folder of headers or one header; another may follow a comma."""


def named_paths(flags: Sequence[str]) -> tuple[Path, ...]:
    """List the absolute paths in flags of any kind.

    Examples
    --------
    >>> [str(path) for path in named_paths(["-I/a", "-I", "/b", "--use-pch=/c/x.pch", "-DX", "-Xptxas=-optf=/d,-v"])]
    ['/a', '/b', '/c/x.pch', '/d,-v', '/d']
    """
    texts = [flag[flag.index("/") :] for flag in flags if "/" in flag]
    return tuple(dict.fromkeys(Path(path) for text in texts for path in (text, text.split(",")[0])))


class KernelName(NamedTuple):
    """The parts of a kernel's name in C++.

    Parameters
    ----------
    expression : str
        Name as given, such as ``"ops::scale<float, 4>"``.
    base : str
        Last name, ``"scale"``.
    arguments : tuple of str
        Template arguments, ``("float", "4")``.
    namespaces : tuple of str
        Enclosing namespaces, outermost first, ``("ops",)``.
    """

    expression: str
    base: str
    arguments: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


def parse_name(text: str) -> KernelName:
    """Split a kernel's name into its parts.

    Raises
    ------
    SpecError
        The text is not a name.

    Examples
    --------
    >>> parse_name("ops::scale<float, 4>")
    KernelName(expression='ops::scale<float, 4>', base='scale', arguments=('float', '4'), namespaces=('ops',))
    """
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise SpecError(f"{text!r} is not a kernel name", hints=("write it as in C++: 'f', 'ns::f' or 'f<float, 4>'",))
    arguments = _split(match[3]) if match[3] is not None else ()
    return KernelName(text.strip(), match[2], arguments, tuple(match[1].replace("::", " ").split()))


def _split(text: str) -> tuple[str, ...]:
    """Split template arguments at the commas outside brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return tuple(part.strip() for part in parts)


def read_prototype(source: str, name: KernelName) -> tuple[KernelParam, ...]:
    """Read the parameters of a kernel from a source.

    Raises
    ------
    EntryPointNotFoundError
        The source has no such kernel.
    SpecError
        A parameter has a type that can't be passed, or several kernels match the name.
    """
    fitting = _choose(_kernels(source, name), name)
    typed = [(function, _template_types(function, name)) for function in fitting]
    read = [(function, tuple(_param(each, types, name) for each in function.params)) for function, types in typed]
    spelt = {tuple(param.name for param in params) for function, params in read if function.has_body}
    if len({_types(params) for _, params in read}) > 1 or len(spelt) > 1:
        taken = [(each.call_name, ", ".join(f"{param.type} {param.name}" for param in params)) for each, params in read]
        shown = dict.fromkeys(f"{call}({params})" for call, params in taken)
        hint = "give each of them a name of its own: only the compiler evaluates #if and overloads"
        if len(dict(taken)) > 1:
            hint = "write the namespace as well, as in name='ops::scale'"
        raise SpecError(f"{name.expression} may be any of: {', '.join(shown)}", hints=(hint,))
    return read[0][1]


def _kernels(source: str, name: KernelName) -> list[Function]:
    """Find the kernels with this last name, definitions before declarations."""
    check_size([SourceText("the source", source)])
    code = outline(source).code
    reader = DeclarationReader(lambda _header, _offset, _words: None)
    reader.read(CppCode(code, 0))
    found = [function for header in reader.found if (function := parse_function(header, name.base)) is not None]
    kernels = sorted((f for f in found if "__global__" in f.specifiers), key=lambda f: not f.has_body)
    if kernels:
        return kernels
    heads = [re.split("[;{}]", text, maxsplit=1)[0] for text in code.split("__global__")[1:]]
    called = [[name for name in _BEFORE_PARENTHESIS.findall(head) if not name.startswith("__")] for head in heads]
    known = sorted({names[0] for names in called if names})
    problem = f"{name.base} is not a __global__ function" if found else f"the source has no function {name.base}"
    hint = f"its kernels are: {', '.join(known)}" if known else "a kernel begins with __global__ void"
    raise EntryPointNotFoundError(problem, hints=(hint,))


def _choose(kernels: Sequence[Function], name: KernelName) -> Sequence[Function]:
    """Select the kernels in the namespaces of the name, as far as the source shows them.

    An inline namespace or a ``using`` allows a name without namespaces. An alias or a macro gives namespaces other
    names, so that the name may mean any of the kernels.
    """
    placed = [(kernel, tuple(kernel.call_name.split("::")[1:-1])) for kernel in kernels]
    same = [kernel for kernel, spaces in placed if spaces == name.namespaces]
    fitting = same or [kernel for kernel, spaces in placed if is_within(name.namespaces, spaces)] or kernels
    return [kernel for kernel in fitting if (kernel.template is not None) == bool(name.arguments)] or fitting


def is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether all names of `part` are in `whole`, in the same order.

    Examples
    --------
    >>> is_within(["lib"], ["lib", "v2"]), is_within(["v1"], ["lib", "v2"])
    (True, False)
    """
    rest = iter(whole)
    return all(name in rest for name in part)


def _types(params: Sequence[KernelParam]) -> tuple[object, ...]:
    """Return a signature of the parameters that ignores their names and spelling."""
    return tuple((param.is_pointer, param.is_const, param.dtype or param.type.replace(" ", "")) for param in params)


def _template_types(function: Function, name: KernelName) -> dict[str, str]:
    """Map each type parameter of a template to its argument."""
    if function.template is None:
        if name.arguments:
            raise SpecError(f"{name.base} is not a template, so it takes no arguments {', '.join(name.arguments)}")
        return {}
    if not name.arguments:
        raise SpecError(f"{name.base} is a template: name an instance, such as name='{name.base}<float>'")
    pairs = zip(_split(" ".join(function.template)), name.arguments, strict=False)
    words = [(part.partition("=")[0].split(), argument) for part, argument in pairs]
    return {parts[-1]: argument for parts, argument in words if parts[:1] in (["typename"], ["class"])}


def _param(param: CppParam, types: dict[str, str], name: KernelName) -> KernelParam:
    """Read one parameter, with the template's types substituted."""
    words = [token.text for token in significant(param.type)]
    words = [w for word in words for w in ([t.text for t in significant(types[word])] if word in types else [word])]
    pointers = words.count("*")
    plain = [word for word in words if word not in _DROPPED and word != "*"]
    text = canonical_type(plain)
    dtype = BY_NAME[CPP_SCALARS[text]] if text in CPP_SCALARS else None
    if pointers > 1 or param.shape in (Shape.REFERENCE, Shape.RVALUE, Shape.PACK, Shape.ARRAY):
        raise SpecError(
            f"{name.base}: the parameter {param.type} {param.name} can't be passed",
            hints=("a kernel takes pointers to elements and scalars",),
        )
    if pointers:
        star = words.index("*")
        return KernelParam(param.name, param.type, True, "const" in words[:star], dtype)
    if dtype is None or dtype.is_narrow or dtype.is_for_arrays_only or dtype.size_bytes > _LARGEST_SCALAR:
        hint = "scalars are bool, integers of 8 to 64 bits, float, double and complex<float>; pass others as arrays"
        raise SpecError(f"{name.base}: the scalar {param.type} {param.name} can't be passed", hints=(hint,))
    return KernelParam(param.name, param.type, False, True, dtype)


class RawKernel(NamedTuple):
    """The source of a raw kernel and the author's compiler options.

    Parameters
    ----------
    source : str
    name : KernelName
    flags : tuple of str
        Flags of the author, one argument each.
    include_paths : tuple of Path
        Folders of the author.
    use_fast_math : bool
    suffix : str
        End of the source's name.
    """

    source: str
    name: KernelName
    flags: tuple[str, ...] = ()
    include_paths: tuple[Path, ...] = ()
    use_fast_math: bool = False
    suffix: str = ".cu"

    @property
    def file_name(self) -> str:
        """The name of the source in messages."""
        return f"{self.name.base}{self.suffix}"

    def options(self) -> tuple[str, ...]:
        """Return the options for both NVRTC and nvcc."""
        standard = () if any(flag.startswith(("-std", "--std")) for flag in self.flags) else ("-std=c++17",)
        fast = ("--use_fast_math",) if self.use_fast_math else ()
        return (*standard, *fast, *(f"-I{path}" for path in self.include_paths), *self.flags)

    def build(self, archs: tuple[Arch, ...], session: Session, *, with_ptx: bool = False) -> Kernel:
        """Return the compiled kernel, from the cache or compiled now, see `compile_raw`."""
        return obtain_kernel(
            raw_key(self, archs, session, with_ptx=with_ptx),
            raw_origin(self, archs, session),
            partial(compile_raw, self, archs, session, with_ptx=with_ptx),
            self.name.expression,
            session,
        )


def placeless(options: Sequence[str]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Replace each absolute path of headers in options with a number, and return the options and the paths.

    Examples
    --------
    >>> options, places = placeless(["-I/home/ada", "-DHOME=/home/ada", "-include", "/opt/a.h"])
    >>> options, [str(place) for place in places]
    (('-I<0>', '-DHOME=/home/ada', '-include', '<1>'), ['/home/ada', '/opt/a.h'])
    """
    found: list[str] = []
    places: list[Path] = []
    is_place = False
    for option in options:
        named = _PLACE.fullmatch(f"-I{option}" if is_place else option)
        if named is None or named[3] is None:
            found.append(option)
        else:
            found.append(f"{'' if is_place else named[1] + named[2]}<{len(places)}>")
            places.append(Path(named[3]))
        is_place = not is_place and named is not None and not (named[2] or named[3])
    return tuple(found), tuple(places)


def for_nvrtc(kernel: RawKernel) -> RawKernel:
    r"""Return the kernel without nvcc's own flags, and with ``-include`` headers as ``#include`` lines of its source.

    NVRTC searches a header of the source only in the folders of the flags, but a header of a flag also in the process's
    working folder. A ``#line`` directive keeps the line numbers in messages correct.

    Examples
    --------
    >>> from be_runtime.kernels.raw_compiler import parse_name
    >>> for_nvrtc(RawKernel("int a;", parse_name("f"), ("-DX", "-include", "a.h"))).source
    '#include "a.h"\n#line 1 "f.cu"\nint a;'
    """
    names, flags = [], []
    words = iter(kernel.flags)
    for word in words:
        option, is_joined, value = word.partition("=")
        if option in _PRE_INCLUDE:
            names.append(value if is_joined else next(words, ""))
        elif word.lstrip("-") not in RELAXED_CONSTEXPR:  # NVRTC refuses host functions in device code
            flags.append(word)
    includes = "".join(f'#include "{name}"\n' for name in names)
    return kernel._replace(source=f'{includes}#line 1 "{kernel.file_name}"\n{kernel.source}', flags=tuple(flags))


def instantiated(source: str, name: KernelName) -> str:
    """Return the source, with a reference that makes nvcc compile an instance of a template."""
    if not name.arguments:
        return source
    return f"{source}\n\nstatic void* const be_instance = (void*)&{name.expression};\n"


def entry_in_cubin(cubin: bytes, name: KernelName) -> str:
    """Find the name of a kernel in a cubin of nvcc by the names of the cubin's sections.

    Raises
    ------
    BuildError
        No kernel matches, or several do.

    Examples
    --------
    >>> from be_runtime.kernels.raw_compiler import parse_name
    >>> entry_in_cubin(b".text._Z5scalePf" + bytes(1), parse_name("scale"))
    '_Z5scalePf'
    """
    hint = "install NVRTC (pip install nvidia-cuda-nvrtc), which distinguishes instances of a template"
    return only_entry(_ENTRY.findall(cubin), name, hint)


def only_entry(listed: Iterable[bytes], name: KernelName, *hints: str) -> str:
    """Return the only mangled name that a kernel's name can mean.

    Raises
    ------
    BuildError
        No name matches, or several do.
    """
    entries = sorted({entry.decode() for entry in listed})
    found = entries_of(entries, name)
    if len(found) == 1:
        return found[0]
    raise BuildError(
        f"the compiled source has {f'{len(found)} kernels' if found else 'no kernel'} of the name {name.expression}; "
        f"it has {', '.join(entries) or 'none'}",
        hints=hints,
    )


def entries_of(entries: Iterable[str], name: KernelName) -> list[str]:
    """List the mangled names that a kernel's name can mean.

    Examples
    --------
    >>> entries_of(["_Z5scalePf", "_ZN3ops4copyEPf"], parse_name("copy"))
    ['_ZN3ops4copyEPf']
    """
    marked = {entry: scopes for entry in entries if (scopes := _scopes(entry, name)) is not None}
    same = [entry for entry, scopes in marked.items() if scopes == name.namespaces]
    return same or [entry for entry, scopes in marked.items() if is_within(name.namespaces, scopes)]


def _scopes(entry: str, name: KernelName) -> tuple[str, ...] | None:
    """Return the namespaces in a mangled kernel name; None for a kernel with another name.

    The Itanium ABI writes each name after its length, names in a namespace between ``N`` and ``E``, and ``I`` before a
    template's arguments. An ``extern "C"`` function has its plain name.
    """
    if entry == name.base:
        return None if name.arguments else name.namespaces
    nested, at = entry.startswith("_ZN"), 3 if entry.startswith("_ZN") else 2
    names = []
    while entry.startswith("_Z") and (length := _LENGTH.match(entry, at)):
        at = length.end() + int(length[0])
        names.append(entry[length.end() : at])
        if not nested:
            break
    is_instance = entry[at : at + 1] == "I"
    return tuple(names[:-1]) if names[-1:] == [name.base] and is_instance == bool(name.arguments) else None


def raw_key(kernel: RawKernel, archs: Sequence[Arch], session: Session, *, with_ptx: bool = False) -> CacheKey:
    """Make the key of a compiled kernel.

    The key does not load a compiler. It has the files of all NVRTC libraries that may be used. If none of them can
    compile the kernel, the entry depends on the files of the compiler that compiled the kernel.
    """
    return own_key(
        "kernel",
        *_fields(kernel, archs),
        ("options", kernel.options()),
        ("ptx", str(with_ptx)),
        ("compilers", _compiler_files(session)),
        ("environment", _environment(session.system)),
        ("generator", own_code_digest()),
    )


def raw_origin(kernel: RawKernel, archs: Sequence[Arch], session: Session) -> Origin:
    """Make the part of the kernel's id that describes its source, without the paths of headers and compilers."""
    options, places = placeless(kernel.options())
    key = make_key("kernel", *_fields(kernel, archs), ("options", options))
    return Origin(key, places, lambda: _compiler_contents(session))


def stored_origin(key: CacheKey, session: Session) -> Origin | None:
    """Return the origin of a cached kernel for other machines; None if this machine's compilers differ."""
    if list(key.texts("compilers")) != _compiler_files(session):
        return None
    options, places = placeless(key.texts("options"))
    return Origin(make_key("kernel", ("options", options)), places, lambda: _compiler_contents(session))


def _compiler_files(session: Session) -> list[str]:
    """List the files of the NVRTC libraries that may be used, or else the fields of the toolchain."""
    found = [f"{path} {session.system.stat(path)}" for path in _nvrtc_libraries(session.system)]
    return found or [part for pair in _toolchain(session).key_fields() for part in pair]


def _compiler_contents(session: Session) -> tuple[Field, ...]:
    """Return fields that identify the compilers of `raw_key` by their contents."""
    contents = [record_file(path, path).sha256 for path in map(str, _nvrtc_libraries(session.system))]
    return (("nvrtc", contents),) if contents else (("toolchain", _compiler_files(session)),)


def _fields(kernel: RawKernel, archs: Sequence[Arch]) -> tuple[Field, ...]:
    given = ("name", kernel.name.base), ("source", kernel.source), ("expression", kernel.name.expression)
    return (*given, ("archs", [arch.sm for arch in archs]))


def _environment(system: System) -> list[str]:
    """List the environment variables that affect nvcc, with their values."""
    return [f"{name}={value}" for name in COMPILE_VARIABLES if (value := system.environ.get(name))]


def compile_raw(
    kernel: RawKernel, archs: Sequence[Arch], session: Session, staging: Path, *, with_ptx: bool = False
) -> Compiled:
    """Compile a kernel for each architecture and, on request, to PTX of the latest architecture without a suffix.

    Raises
    ------
    BuildError
        The kernel doesn't compile.
    CudaNotFoundError
        There is no NVRTC, and the toolkit has no nvcc, since clang compiles with it.
    ToolchainError
        There is neither NVRTC nor nvcc.
    """
    try:
        return _compile(kernel, archs, session, staging, ptx_arch(archs, with_ptx=with_ptx))
    except BuildError as error:
        if not error.output:
            raise
        from be_runtime.compile.messages import explained

        raise explained(error, {kernel.file_name: kernel.source}, is_cuda=True) from None


def _compile(
    kernel: RawKernel, archs: Sequence[Arch], session: Session, staging: Path, latest: Arch | None
) -> Compiled:
    driver = probe_devices(session.system).driver_version
    found = nvrtc.find_nvrtc(session.system, (), driver, archs)
    if found is not None:
        return _by_nvrtc(kernel, archs, found, session, staging, latest)
    system = ObservingSystem(session.system)
    with contextlib.suppress(ToolchainError):
        if (cuda := _toolchain(session).cuda) is not None:
            found = nvrtc.find_nvrtc(system, (cuda.root,), driver, archs)
    listed = LookedAt.of_listings(system)
    programs: tuple[Path, ...]
    if found is not None:
        made, programs = _by_nvrtc(kernel, archs, found, session, staging, latest), (found.path,)
    else:
        toolkit = _toolchain(session).cuda
        assert toolkit is not None, "resolve() raises when there is no CUDA toolkit"
        nvcc = toolkit.compiler
        if not isinstance(nvcc, Nvcc):
            raise CudaNotFoundError(
                f"there is neither NVRTC nor nvcc to compile a raw kernel with: {toolkit.root} has no nvcc, and no "
                f"NVRTC was found that compiles for {', '.join(arch.sm for arch in archs)}",
                hints=(nvrtc.PACKAGES,),
            )
        check_archs(tuple(archs), toolkit)
        made, programs = _by_nvcc(kernel, archs, nvcc, session, staging, latest), (nvcc.path, nvcc.cicc, toolkit.ptxas)
    # The key has neither the compiler nor the folders that were searched for it.
    dependencies, absent = (*made.read.dependencies, *programs), (*made.read.absent, *listed.absent)
    return made._replace(read=made.read._replace(dependencies=dependencies, others=listed.others, absent=absent))


def _nvrtc_libraries(system: System) -> list[Path]:
    """List the NVRTC libraries in the locations that are known without a search for a toolkit."""
    return [path for place in nvrtc.places(system) for path in nvrtc.libraries(place.folder, system)]


def _toolchain(session: Session) -> Toolchain:
    return resolve(ToolchainRequest(need_cuda=True), system=session.system, record_dir=session.record_dir)


def _by_nvrtc(
    kernel: RawKernel, archs: Sequence[Arch], found: nvrtc.Nvrtc, session: Session, staging: Path, latest: Arch | None
) -> Compiled:
    asked, system = for_nvrtc(kernel), session.system
    named = named_paths(asked.flags)
    folders = (*kernel.include_paths, *named)
    includes = nvrtc.header_folders(found, asked.source, session.record_dir, system)
    headers = nvrtc.find_headers(asked.source, kernel.file_name, folders, includes, system)
    options = (*asked.options(), *(f"-I{folder}" for folder in includes))
    path, name = staging / kernel.file_name, kernel.name.expression
    programs = {
        arch: nvrtc.compile_program(found, asked.source, path, name, (f"--gpu-architecture={arch.sm}", *options))
        for arch in archs
    }
    images = [KernelImage(arch, program.entry, program.code) for arch, program in programs.items()]
    if latest is not None:
        images.append(KernelImage(latest, programs[latest].entry, programs[latest].ptx, is_ptx=True))
    # NVRTC's file, which the key has, determines the headers that NVRTC wrote.
    files = (path for path in map(Path, headers.dependencies) if not path.is_relative_to(session.record_dir))
    read = headers._replace(dependencies=(*files, *filter(system.is_file, named)))
    return Compiled(tuple(images), read, next(iter(programs.values())).compiler)


def _by_nvcc(
    kernel: RawKernel, archs: Sequence[Arch], nvcc: Nvcc, session: Session, staging: Path, latest: Arch | None
) -> Compiled:
    plan = _nvcc_plan(kernel, archs, nvcc, latest)
    headers = run_plan(kernel.name.base, plan, session, staging)
    cubins = [(arch, (staging / f"{arch.sm}.cubin").read_bytes()) for arch in archs]
    images = [KernelImage(arch, entry_in_cubin(cubin, kernel.name), cubin) for arch, cubin in cubins]
    if latest is not None:
        text = (staging / f"{latest.compute}.ptx").read_bytes()
        images.append(images[archs.index(latest)]._replace(data=text, is_ptx=True))
    named = named_paths(kernel.flags)
    absent = shadowing_paths(headers, (*kernel.include_paths, *named))
    read = BuildOutput((), (*headers, *filter(session.system.is_file, named)), absent=absent)
    return Compiled(tuple(images), read, (nvcc.label, nvcc.host.banner, *_environment(session.system)))


def _nvcc_plan(kernel: RawKernel, archs: Sequence[Arch], nvcc: Nvcc, latest: Arch | None) -> BuildPlan:
    """Plan one command for each architecture and one for PTX; each writes a depfile, and no command links."""
    relaxed = kernel._replace(flags=with_relaxed_constexpr(kernel.flags))
    head = (str(nvcc.path), "-ccbin", str(nvcc.host.path), *relaxed.options())
    source = GeneratedFile(path=f"{SOURCES}/{kernel.file_name}", text=instantiated(kernel.source, kernel.name))
    kinds = [("cubin", arch.sm) for arch in archs] + [("ptx", arch.compute) for arch in archs if arch == latest]
    edges = tuple(
        Edge(
            argv=(*head, f"-{kind}", f"-arch={arch}", source.path, "-o", f"{arch}.{kind}", "-MD", "-MF", f"{arch}.d"),
            inputs=(source.path,),
            outputs=(f"{arch}.{kind}",),
            description=f"compiling {kernel.name.base} for {arch}",
            tool="compile",
            depfile=f"{arch}.d",
        )
        for kind, arch in kinds
    )
    return BuildPlan(files=(source,), edges=edges)
