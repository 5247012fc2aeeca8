"""Reads the public declarations of C++ headers, and the `///` above them, with libclang."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jaxlib
from clang.cindex import AccessSpecifier, Cursor, CursorKind, Index, TranslationUnit

INCLUDE = Path(__file__).resolve().parents[2] / "be_runtime" / "include"
HEADERS = (
    "brainevent/common.h",
    "brainevent/tensor.h",
    "brainevent/scalar.h",
    "brainevent/span.h",
    "brainevent/workspace.h",
    "brainevent/dtype.h",
    "brainevent/dtypes.h",
    "brainevent/check.h",
    "brainevent/dispatch_macros.h",
    "brainevent/dispatch.h",
    "brainevent/half.h",
    "brainevent/float8.h",
    "brainevent/packed.h",
    "brainevent/complex.h",
    "brainevent/state.h",
    "brainevent/parallel.h",
    "brainevent/torch_compat.h",
    "brainevent/ffi_compat.h",
    "cuda_common.h",
)
"""What an author includes, in the order of the page. `text.h` only serves these."""

HIDDEN = ("internal", "detail", "impl", "std", "c10", "at", "torch")
"""Namespaces without public names of ours; the page on PyTorch's extensions lists PyTorch's names."""

CLASSES = (CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.CLASS_TEMPLATE)
FUNCTIONS = (CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR)
VALUES = (CursorKind.VAR_DECL, CursorKind.FIELD_DECL)
ALIASES = (CursorKind.TYPE_ALIAS_DECL, CursorKind.TYPE_ALIAS_TEMPLATE_DECL)
NOISE = {"BE_HD", "BE_COLD", "__device__", "__host__", "__forceinline__", "inline", "BE_INTERNAL_PLACE"}
# So that no CUDA toolkit is needed; kernels' intrinsics are used in bodies alone, which are skipped.
CUDA_TYPES = "struct __half { unsigned short x; };\nstruct __nv_bfloat16 { unsigned short x; };\n"
CUDA_HEADERS = ("cuda_bf16.h", "cuda_fp16.h", "cuda_runtime.h")
CUDA_WORDS = re.compile(r"__(device|host|forceinline)__")
SECTION = re.compile(r"^// ---- (.+?) -+\n((?://.*\n)*)", re.MULTILINE)
"""A heading between declarations, and what is said below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declaration.

    Parameters
    ----------
    kind : str
        The directive of Sphinx' C++ domain, such as ``cpp:function``, or ``c:macro``.
    text : str
        The declaration without body and attributes, with the namespace in its name.
    comment : str
        The text of its ``///``, in Markdown.
    line : int
        Where it begins in its header.
    inside : tuple of Declaration
        The public members of a class, or the values of an enumeration.
    """

    kind: str
    text: str
    comment: str
    line: int
    inside: tuple[Declaration, ...] = ()


def uncomment(raw: str) -> str:
    r"""Strip the ``///`` of each line.

    Examples
    --------
    >>> uncomment("/// One.\n///\n///     code")
    'One.\n\n    code'
    """
    lines = [re.sub(r"^\s*///<? ?", "", line) for line in raw.splitlines()]
    return "\n".join(lines).strip("\n")


def file_comment(header: str) -> str:
    """The text about a header as a whole."""
    source = (INCLUDE / header).read_text(encoding="utf-8")
    match = re.search(r"^/// \\file\n((?:///.*\n)+)", source, re.MULTILINE)
    return uncomment(match[1]) if match else ""


def read_macros(source: str) -> Iterator[Declaration]:
    """Yield the public macros of a header, of which libclang says little."""
    pattern = re.compile(r"((?:^///.*\n)*)^#define ((?:BE|CSRMM|IS|READ|WRITE|ZERO)_\w+)(\([^)]*\))?", re.MULTILINE)
    seen = set()
    for match in pattern.finditer(source):
        name = match[2]
        if name.startswith(("BE_INTERNAL", "BE_DEVICE_PASS")) or name in NOISE or name in seen:
            continue
        seen.add(name)
        line = source.count("\n", 0, match.start(2)) + 1
        yield Declaration(kind="c:macro", text=name + (match[3] or ""), comment=uncomment(match[1]), line=line)


@cache
def parse() -> TranslationUnit:
    """Parse all headers at once, as a C++ source that includes them.

    Raises
    ------
    RuntimeError
        There is no C++ compiler, whose standard headers are needed, or a header has an error.
    """
    main = CUDA_TYPES + "".join(f'#include "{header}"\n' for header in HEADERS)
    for_cuda = INCLUDE / "cuda_common.h"
    texts = {"/nowhere/all.cc": main, str(for_cuda): CUDA_WORDS.sub("", for_cuda.read_text(encoding="utf-8"))}
    texts |= {f"/nowhere/{name}": "" for name in CUDA_HEADERS}
    standard = [f"-isystem{each}" for each in _standard_folders()]
    unit = Index.create().parse(
        "/nowhere/all.cc",
        args=["-xc++", "-std=c++17", f"-I{INCLUDE}", "-I/nowhere", *standard],
        unsaved_files=list(texts.items()),
        options=TranslationUnit.PARSE_SKIP_FUNCTION_BODIES,
    )
    errors = [str(each) for each in unit.diagnostics if each.severity >= 3]
    if errors:
        raise RuntimeError("libclang can't read the headers:\n" + "\n".join(errors))
    return unit


def _standard_folders() -> list[str]:
    """The folders of the standard headers, which libclang's wheel does not bring, and of XLA's."""
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        raise RuntimeError("there is no C++ compiler, whose headers the reference is read with: install g++")
    command = [compiler, "-xc++", "-E", "-v", "/dev/null"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    folders = re.findall(r"^ (/\S+)$", said.partition("search starts here")[2], re.MULTILINE)
    return [*folders, str(Path(jaxlib.__file__).parent / "include")]


def read_header(header: str) -> list[Declaration]:
    """Read the public declarations of one header, in its order."""
    path = INCLUDE / header
    source = path.read_text(encoding="utf-8")
    found = list(_declarations(parse().cursor, path))
    names = {_name(each) for each in found}
    # A function of the same name is what is meant: the macro is there for #ifdef.
    found += [each for each in read_macros(source) if each.text not in names]
    found += [_section(match, source) for match in SECTION.finditer(source)]
    return sorted(found, key=lambda each: each.line)


def _name(declaration: Declaration) -> str:
    """The last name before the parameters."""
    return re.split(r"[ :&*]", declaration.text.partition("(")[0])[-1]


def _section(match: re.Match[str], source: str) -> Declaration:
    """A heading of a header."""
    said = "\n".join(line[2:].removeprefix(" ") for line in match[2].splitlines())
    line = source.count("\n", 0, match.start()) + 1
    return Declaration(kind="rubric", text=match[1], comment=said.strip(), line=line)


def _declarations(parent: Cursor, path: Path) -> Iterator[Declaration]:
    for each in parent.get_children():
        place = each.location.file
        if place is None or Path(place.name) != path:
            continue
        if each.kind is CursorKind.NAMESPACE:
            if each.spelling not in HIDDEN:
                yield from _declarations(each, path)
        elif each.kind is CursorKind.LINKAGE_SPEC:
            continue
        elif (made := _declaration(each)) is not None:
            yield made


def _declaration(cursor: Cursor) -> Declaration | None:
    """Read one declaration; None for one that is private, or only announces."""
    if cursor.access_specifier in (AccessSpecifier.PRIVATE, AccessSpecifier.PROTECTED) or _is_ours(cursor):
        return None
    comment, line = uncomment(cursor.raw_comment or ""), cursor.extent.start.line
    if cursor.kind in CLASSES or cursor.kind is CursorKind.ENUM_DECL:
        if not cursor.is_definition():
            return None
        members = tuple(filter(None, map(_declaration, cursor.get_children())))
        kind = "cpp:enum-class" if cursor.kind is CursorKind.ENUM_DECL else "cpp:class"
        return Declaration(kind=kind, text=_head(cursor), comment=comment, line=line, inside=members)
    if cursor.kind is CursorKind.ENUM_CONSTANT_DECL:
        value = cursor.enum_value & 0xFF  # libclang's Python takes an alias such as uint8_t for a signed type
        return Declaration(kind="cpp:enumerator", text=f"{cursor.spelling} = {value}", comment=comment, line=line)
    kinds = [("cpp:function", FUNCTIONS), ("cpp:var", VALUES), ("cpp:type", ALIASES)]
    if comment and cursor.kind is CursorKind.UNEXPOSED_DECL:  # the template of a variable
        return Declaration(kind="cpp:var", text=_head(cursor), comment=comment, line=line)
    for kind, members in kinds:
        if cursor.kind in members and "BE_INTERNAL" not in cursor.spelling:
            return Declaration(kind=kind, text=_head(cursor), comment=comment, line=line)
    return None


def _is_ours(cursor: Cursor) -> bool:
    """True for what authors of kernels neither write nor need: copying, what generated code calls, a repetition."""
    lexical = cursor.lexical_parent  # None for what a macro makes
    if lexical is None or cursor.semantic_parent != lexical:
        return True
    if cursor.spelling.startswith("be_") and cursor.kind in VALUES:
        return True
    if cursor.is_copy_constructor() or cursor.spelling == "operator=":
        return True
    if cursor.kind is CursorKind.FUNCTION_TEMPLATE and not _is_written_out(cursor):
        return True  # a name of torch that a macro declares, and whose use is an error
    takes = [each.type.spelling for each in cursor.get_arguments() or ()]
    return cursor.kind is CursorKind.CONSTRUCTOR and any("detail::" in each or "internal::" in each for each in takes)


def _head(cursor: Cursor) -> str:
    """The declaration's own words: up to its body, its value or its end, without attributes."""
    words: list[str] = []
    depth = 0
    for token in cursor.get_tokens():
        word = token.spelling
        if depth == 0 and (word in ("{", ";") or (word == "=" and cursor.kind not in ALIASES)):
            break
        if depth == 0 and word == ":" and cursor.kind in (*FUNCTIONS, *CLASSES, CursorKind.ENUM_DECL):
            break
        depth += (word in "(<[") - (word in ")>]")
        if token.kind.name != "COMMENT" and word not in NOISE:
            words.append(word)
    if cursor.kind is CursorKind.STRUCT_DECL and cursor.spelling not in words:  # made by a macro, as the next
        return _qualify(cursor, cursor.spelling)
    if cursor.kind is CursorKind.VAR_DECL and cursor.spelling not in words:  # so is one of several in one declaration
        return _qualify(cursor, f"{cursor.type.spelling} {cursor.spelling}")
    if cursor.kind is CursorKind.FUNCTION_DECL and cursor.spelling not in words:
        arguments = ", ".join(f"{each.type.spelling} {each.spelling}" for each in cursor.get_arguments())
        return f"{cursor.result_type.spelling} {cursor.spelling}({arguments})"
    text = re.sub(r"alignas \( .*? \) \) ", "", " ".join(words))
    text = re.sub(r" , class = decltype .*?(?= > (constexpr|explicit))", "", text)
    for old, new in ((r"^(class|struct|enum class|enum|using) ", ""), (r"\s*(::|\(|\)|<|>|,|\[|\]|~)\s*", r"\1")):
        text = re.sub(old, new, text)
    if text.startswith("template"):
        end = _end_of_brackets(text)
        text = f"{text[:end]} {re.sub(r'^(class|struct|using) ', '', text[end:].lstrip())}"
    text = re.sub(r",", ", ", re.sub(r"([)>])(?=[A-Za-z_&*])", r"\1 ", text))
    return _qualify(cursor, text)


def _is_written_out(cursor: Cursor) -> bool:
    """Return whether the header has the name of the declaration; a macro's definition has a parameter instead."""
    text = "".join(token.spelling for token in cursor.get_tokens()).partition("{")[0]
    name = re.sub(r"\s|(?<!operator)<.*", "", cursor.spelling)
    return "type-parameter" in name or f"{name}(" in text  # the operator of a conversion has no name


def _end_of_brackets(text: str) -> int:
    """Return the position after the bracket that closes the first ``<``.

    Examples
    --------
    >>> _end_of_brackets("template<template<class> class T> f()")
    33
    """
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == ">" and depth == 0:
            return position + 1
    raise ValueError(f"{text!r} has no closing bracket")


def _qualify(cursor: Cursor, text: str) -> str:
    """Put the namespace before the name, for what is no member."""
    scope = cursor.semantic_parent
    if scope is None or scope.kind is not CursorKind.NAMESPACE:
        return text
    return re.sub(
        rf"(?<![\w:]){re.escape(cursor.spelling)}(?!\w)", f"{scope.spelling}::{cursor.spelling}", text, count=1
    )
