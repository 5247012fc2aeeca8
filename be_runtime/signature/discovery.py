"""Discover the entry points of a module from its sources and the `functions` argument."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from be_runtime.errors import ArgumentError, DuplicateEntryPointError, EntryPointNotFoundError, SourceSpan, SpecError
from be_runtime.signature import SourceText, grammar, model
from be_runtime.signature.cpp.functions import Function
from be_runtime.signature.cpp.macros import Macro
from be_runtime.signature.cpp.outline import Branch
from be_runtime.signature.cpp.program import MOST_OF_A_NAME, MOST_OF_A_WORD, Annotation, Program
from be_runtime.signature.infer import at, complete, contradiction, infer, is_untyped, wrong_type
from be_toolchain.named import NamedTuple

Functions = Mapping[str, Sequence[str]] | Sequence[str] | None
"""A spec for each name, names whose spec is inferred, or None for the annotations."""

_MOST_ENTRIES, _MOST_PARAMS, _MOST_CHOICES = 1000, 20_000, 200_000
"""Limits for the entry points of the sources that are compiled together, all their parameters, and their choices."""

_MOST_LINES, _MOST_USED = 100, 256
"""Limits for the places in an entry point's warnings, and for the functions and macros that the search reads."""

_INSTANCE = r"(?:<[\w\s:,<>+*/-]+>)?"
"""The arguments of a template: names, types and numbers."""
_MOST_INSTANCES = 256
"""Limit for the instances of one entry point, all of which are compiled."""
_DIVIDE = "divide them among several sources, as of load_cuda_dir, or take what differs as an attribute"


class _Request(NamedTuple):
    """A request for one entry point.

    Parameters
    ----------
    name : str
        Name of the function, or of a template with its arguments.
    tokens : tuple of str or None
        Spec; None to infer it from the C++ signature.
    program : Program
    note : Annotation or None
        Annotation; None for a request in the `functions` argument.
    """

    name: str
    tokens: tuple[str, ...] | None
    program: Program
    note: Annotation | None = None

    @property
    def function(self) -> str:
        """The name without a template's arguments: the name of the entry point."""
        return self.name.partition("<")[0]

    @property
    def instance(self) -> str:
        """The arguments of a template, as ``<T, 4>``; empty for an ordinary function."""
        return self.name[len(self.function) :]

    def locate(self, index: int) -> SourceSpan | None:
        """Return the place of a token, or of the name for -1; None for a request from Python."""
        if self.note is None:
            return None
        return self.program.places.span(self.note.starts[index + 1], len(self.note.words[index + 1]))


def discover(
    sources: Sequence[SourceText],
    functions: Functions = None,
    *,
    is_partial: bool = False,
    included: Sequence[SourceText] = (),
) -> tuple[model.EntryPoint, ...]:
    """Find the entry points of a module.

    Parameters
    ----------
    sources : sequence of SourceText
        Sources of the module. An entry point is searched first in the source of its annotation.
    functions : mapping of str to sequence of str, sequence of str, or None
        Names with their arg_spec, names whose spec is inferred from the C++ signature, or None for the
        ``// @BE name [tokens]`` annotations. Annotations count in the last case only; an empty list finds nothing.
    is_partial : bool
        True to leave out the names in `functions` that the sources do not define.
    included : sequence of SourceText
        Files that the sources include; host code in them is searched for warnings.

    Returns
    -------
    tuple of EntryPoint
        Entry points in the order of `functions`, or of the annotations.

    Raises
    ------
    ArgumentError
        `functions` has another type.
    SpecError
        A spec or a signature is invalid, or they contradict each other.
    EntryPointNotFoundError
        The sources do not define a requested function, or no function is requested.
    DuplicateEntryPointError
        Two entry points have the same name.

    Examples
    --------
    >>> text = '''// @BE scale
    ... void scale(const BE::Tensor x, BE::Tensor y, float factor) {}
    ... '''
    >>> (entry,) = discover([SourceText(name="a.cc", text=text)])
    >>> entry.call_name, [param.role.value for param in entry.params], entry.line
    ('::scale', ['arg', 'ret', 'attr'], 2)
    """
    listed = _listed(functions)
    program = Program(sources, included)
    if listed is None:
        requests = _annotated(program)
    else:
        requests = [_Request(name, tokens, program) for name, tokens in listed]
        requests = [each for each in requests if not is_partial or _is_here(each)]
    if len(requests) > _MOST_ENTRIES:
        raise SpecError(
            f"more than {_MOST_ENTRIES:,} entry points in {program.places.sources[0].name}",
            hints=(_DIVIDE,),
        )
    for request in requests:
        if not grammar.is_identifier(request.function) or not re.fullmatch(_INSTANCE, request.instance):
            hint = "name the function without its namespaces" if "::" in request.name else ""
            if request.name.startswith(("arg[", "arg ", "ret[", "ret ", "attr.")):
                hint = "a function's name comes before its tokens: NAME arg[n] ret[n]"
            raise SpecError(
                f"{request.name!r} is not an identifier, so no C++ function has this name",
                span=request.locate(-1),
                hints=(hint,) if hint else (),
            )
    return _merge(requests)


def _listed(functions: object) -> list[tuple[str, tuple[str, ...] | None]] | None:
    """Return the names and the tokens in the `functions` argument, or None for annotations."""
    if functions is None:
        return None
    if isinstance(functions, Mapping):
        return [(_name(name), _tokens(name, tokens)) for name, tokens in functions.items()]
    if isinstance(functions, Sequence) and not isinstance(functions, str | bytes | bytearray):
        return [(_name(name), None) for name in functions]
    raise ArgumentError(
        f"functions must be a dict of token lists, a list of names or None, not {functions!r}",
        hints=('functions={"vector_add": ["arg", "arg", "ret", "stream"]} or functions=["vector_add"]',),
    )


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ArgumentError(f"functions holds the name {name!r}; names are strings")
    return name


def _tokens(name: object, tokens: object) -> tuple[str, ...]:
    """Check the token list of one function."""
    if not isinstance(tokens, Sequence) or isinstance(tokens, str | bytes | bytearray):
        hints = (f"write {tokens.split()!r}",) if isinstance(tokens, str) else ()
        raise ArgumentError(f"functions[{name!r}] must be a list of tokens, not {tokens!r}", hints=hints)
    for token in tokens:
        if not isinstance(token, str):
            raise ArgumentError(f"functions[{name!r}] holds {token!r}; tokens are strings")
    return tuple(tokens)


def _is_here(request: _Request) -> bool:
    """Return whether the sources define a function, or may define it by an undefined macro."""
    if request.program.functions(request.function):
        return True
    return request.tokens is not None and request.program.unknown_call_for(request.function) is not None


def _annotated(program: Program) -> list[_Request]:
    """Return the requests in the annotations."""
    requests = []
    for note in islice(program.annotations(), _MOST_ENTRIES + 1):
        if not note.words:
            raise SpecError(
                "a // @BE annotation without a name",
                span=program.places.span(note.start, note.end - note.start),
                hints=("write // @BE name, with the name of the function below it",),
            )
        requests.append(_Request(note.words[0], note.words[1:] or None, program, note))
    if not requests:
        names = ", ".join(source.name for source in program.places.sources) or "no sources at all"
        name = next(iter(program.function_names()), "vector_add")
        example = f"write a line `// @BE {name}` above the definition of `void {name}(...)`"
        raise EntryPointNotFoundError(
            f"no entry points: functions is None, and no source has a // @BE annotation: {names}",
            hints=(f"{example}, or pass functions=[{name!r}]",),
        )
    return requests


def _merge(requests: Sequence[_Request]) -> tuple[model.EntryPoint, ...]:
    """Resolve each name; raise an error for a repeated name, unless its annotations exclude each other and agree."""
    first: dict[str, tuple[_Request, model.EntryPoint]] = {}
    count = choices = 0
    for request in requests:
        known = first.get(request.function)
        if known is not None and not _exclude(known[0], request):
            raise _duplicate(known[0], request)
        if known is not None and known[0].tokens == request.tokens:
            continue
        entry = _resolve(request)
        if known is not None and known[1].params != entry.params:
            raise _duplicate(known[0], request)
        first.setdefault(request.function, (request, entry))
        count += sum(1 + len(param.fields) for param in entry.params)
        choices += sum(len(one.choices) for param in entry.params for one in (param, *param.fields))
        if count > _MOST_PARAMS or choices > _MOST_CHOICES:
            raise SpecError(
                f"the entry points up to {request.name} have more than {_MOST_PARAMS:,} parameters and fields, or "
                f"{_MOST_CHOICES:,} names of enumerations",
                span=request.locate(-1),
                hints=(_DIVIDE,),
            )
    return tuple(entry for _, entry in first.values())


def _exclude(one: _Request, other: _Request) -> bool:
    """Return whether two annotations are in different branches of one ``#if``."""
    index = one.program.places.source_index
    if one.note is None or other.note is None or index(one.note.start) != index(other.note.start):
        return False
    branches = Branch.numbers(one.note.branch)
    return any(branches.get(group, branch) != branch for group, branch in Branch.numbers(other.note.branch).items())


def _duplicate(one: _Request, other: _Request) -> DuplicateEntryPointError:
    """Return the error for two entry points of one name."""
    if one.note is None or other.note is None:
        return DuplicateEntryPointError(f"{other.name}: listed twice in functions")
    return DuplicateEntryPointError(
        f"{other.name}: annotated twice, first at {one.program.places.describe(one.note.starts[0])}",
        span=other.locate(-1),
        hints=("give one of the two functions another name",),
    )


def _resolve(request: _Request) -> model.EntryPoint:
    """Find the function of one request and determine its parameters."""
    program, places, locate = request.program, request.program.places, request.locate
    candidates = [_instance(request, _typed(function, program)) for function in _candidates(request)]
    if not candidates:
        return _unseen(request)
    rules: tuple[model.Param, ...] = ()
    if request.tokens is None:
        function = _only(request, candidates)
        params = infer(function, places)
    else:
        spec, rules = _parse(request)
        errors = [contradiction(spec, function, locate, places) for function in candidates]
        fitting = [function for function, error in zip(candidates, errors, strict=True) if error is None]
        if not fitting and errors[0] is not None:
            raise errors[0] if len(candidates) == 1 else _no_overload(request, candidates)
        function = _only(request, fitting)
        params = complete(spec, function, locate, places)
    _check_instances(request, function, params, rules)
    doc = program.doc_above(function.line_start)
    if not doc and request.note is not None:
        doc = program.doc_above(request.note.start)
    return model.EntryPoint(
        name=request.function,
        call_name=function.call_name,
        params=params,
        source=places.source(function.line_start).name,
        line=places.line(function.line_start),
        unordered=tuple(islice(_unordered(function, program, params), _MOST_LINES)),
        ends=tuple(islice(_ends(function, program), _MOST_LINES)),
        rules=rules,
        doc=doc,
        sizes=tuple(_size_function(request, name, params) for name in model.size_functions(params)),
    )


def _check_instances(
    request: _Request, function: Function, params: Sequence[model.Param], rules: Sequence[model.Param]
) -> None:
    """Raise an error for too many instances of a template, or a number whose type differs between instances."""
    variables = {rule.name: rule for rule in rules if rule.role is model.Role.DTYPE}
    named = [variables[word] for word in dict.fromkeys(re.findall(r"\w+", request.instance)) if word in variables]
    count = math.prod(len(variable.choices) for variable in named)
    if count > _MOST_INSTANCES:
        raise SpecError(
            f"{request.name}: {count:,} instances, one for each combination of dtypes; the limit is {_MOST_INSTANCES}",
            span=request.locate(-1),
            hints=("name the dtypes that callers use, or choose by BE_DISPATCH in the function",),
        )
    for param, cpp in zip(model.call_params(params), function.params, strict=False):
        type_name = re.sub(r"\bconst\b|[\s&]", "", cpp.type)
        if type_name in variables and (param.by_name or param.role is model.Role.ATTR):
            raise SpecError(
                f"{request.name}: the number {param.name} is a {type_name}, which differs between the instances",
                span=at(cpp, request.program.places),
                hints=(f"take a number of its declared type, and convert it to {type_name} in the function",),
            )


def _size_function(request: _Request, name: str, params: Sequence[model.Param]) -> model.SizeFunction:
    """Find the function that an expression calls, and the parameters of the entry point that it takes."""
    program = request.program
    taken = [param for param in params if param.name and param.role in (model.Role.ARG, model.Role.ATTR)]
    known = {param.name: param for param in taken if not param.by_name}
    found = program.functions(name.removesuffix("()"))
    function = next((each for each in found if each.has_body), next(iter(found), None))
    if function is None or function.owner:
        raise SpecError(
            f"{request.name}: no function {name} in the sources",
            span=request.locate(-1),
            hints=(f"define it, as in int64_t {name[:-2]}(const BE::Tensor x), with names of inputs or attributes",),
        )
    if function.returns.split()[-1:] in (["float"], ["double"], ["void"], ["bool"]):
        problem = f"{name} returns {function.returns}, but a size is an integer"
        raise SpecError(f"{request.name}: {problem}", span=at(function, program.places))
    for cpp in program.typed(function).params:
        param = known.get(cpp.name)
        if param is None:
            problem = f"{name} has the parameter {cpp.name!r}, which is not an input or attribute of {request.function}"
            hint = f"it may take {', '.join(known)}, by these names" if known else "the entry point has none"
            if any(other.name == cpp.name for other in taken):
                hint = f"{cpp.name} changes from call to call, and a size is computed when a program is traced"
            raise SpecError(f"{request.name}: {problem}", span=at(cpp, program.places), hints=(hint,))
        if param.role is model.Role.ATTR and param.kind is not model.AttrKind.SCALAR:
            problem = f"{name} takes the attribute {cpp.name}, but it can take inputs and numbers alone"
            raise SpecError(f"{request.name}: {problem}", span=at(cpp, program.places))
        if problem := wrong_type(param, cpp):
            raise SpecError(f"{request.name}: {name} can't take {cpp.name}: {problem}", span=at(cpp, program.places))
    call_name = function.call_name + (request.instance if function.template is not None else "")
    return model.SizeFunction(name, call_name, tuple(cpp.name for cpp in function.params))


def _instance(request: _Request, function: Function) -> Function:
    """Convert a template to the instance that a request names; return other functions unchanged."""
    if not request.instance:
        return function
    if function.template is None:
        raise SpecError(
            f"{request.name}: {request.function} is not a template",
            span=at(function, request.program.places),
            hints=(f"write // @BE {request.function}, or `template <typename T>` above the function",),
        )
    declared = {token.partition("=")[0] for token in request.tokens or ()}
    for word in re.findall(r"\w+", request.instance):
        if word in function.template and word not in declared:
            raise SpecError(
                f"{request.name}: {word} is a parameter of the template, and no token states its dtypes",
                span=request.locate(-1),
                hints=(f"write the tokens, as in {request.name} arg[n]:{word} ret[n]:{word} {word}=float32|float64",),
            )
    return function._replace(call_name=f"{function.call_name}{request.instance}", template=None)


def _unordered(entry: Function, program: Program, params: Sequence[model.Param]) -> Iterator[str]:
    """Yield each place with work on CUDA's default stream in the host code of an entry point, as a text."""
    if not program.has_stream_work:
        return
    from be_runtime.signature.cpp.host_work import default_stream_work

    own = [param.name for param in params if param.role is model.Role.STREAM]
    for where, start, body, owner in _host_code(entry, program):
        streams, hidden = {*own}, {*program.stream_macros, *where.stream_macros}
        if isinstance(owner, Macro):
            hidden.update(("__VA_ARGS__", *(owner.params or ())[-1:]) if owner.is_variadic else ())
        else:
            streams.update(param.name for param in owner.params if "Stream" in param.type)
        for place, text in default_stream_work(body, streams, hidden):
            yield _described(where, start + place, text, owner)


def _ends(entry: Function, program: Program) -> Iterator[str]:
    """Yield each place that ends the process in the host code of an entry point, as a text."""
    if not program.has_ends:
        return
    from be_runtime.signature.cpp.host_work import process_ends

    for where, start, body, owner in _host_code(entry, program):
        for place, name in process_ends(body):
            yield _described(where, start + place, name, owner)


def _host_code(entry: Function, program: Program) -> Iterator[tuple[Program, int, str, Function | Macro]]:
    """Iterate over the bodies of an entry point, and of host functions and macros that it uses, each with its place."""
    owners: list[tuple[Program, Function | Macro]] = [(program, entry)]
    seen = {(program, entry.start)}
    for where, owner in owners:
        start, body, used = where.host_code(owner)
        yield where, start, body, owner
        new = [(place, each) for place, each in used if (place, each.start) not in seen]
        seen.update((place, each.start) for place, each in new)
        owners += new[: _MOST_USED - len(owners)]


def _described(program: Program, offset: int, text: str, owner: Function | Macro) -> str:
    """Format a place for a warning."""
    within = f" in the macro {owner.name}" if isinstance(owner, Macro) else ""
    return f"{program.places.source(offset).name}:{program.places.line(offset)} ({text}{within})"


def _parse(request: _Request) -> tuple[tuple[model.Param, ...], tuple[model.Param, ...]]:
    """Parse the tokens of a request into parameters of the C++ call and rules for axes and dtypes."""
    try:
        params = grammar.parse_spec(request.tokens or (), function=request.name, locate=request.locate)
    except SpecError as error:
        if request.note is not None and request.program.is_comment_next(request.note.end):
            error.hints += ("end each line of a declaration except the last with a backslash",)
        raise
    rules = tuple(param for param in params if param.role in model.RULES)
    return tuple(param for param in params if param.role not in model.RULES), rules


def _typed(function: Function, program: Program) -> Function:
    """Resolve a function's parameter types by the sources; raise an error for too many parameters and fields."""
    typed = program.typed(function) if len(function.params) <= grammar.MOST else function
    count = sum(1 + len(param.members) for param in typed.params)
    if count > grammar.MOST:
        raise SpecError(
            f"{function.name}: it has {count:,} parameters and fields, but the limit is {grammar.MOST:,}",
            span=at(function, program.places),
            hints=("take many arrays as BE::Tensors, and many numbers as a BE::Span",),
        )
    return typed


def _candidates(request: _Request) -> list[Function]:
    """Find the functions that a request may name, one for each signature: definitions, or prototypes without one."""
    program, index = request.program, request.program.places.source_index
    is_everywhere = len(program.headers.get(request.function, ())) > MOST_OF_A_WORD
    functions: Sequence[Function] = () if is_everywhere else program.functions(request.function)
    if is_everywhere or len(functions) > MOST_OF_A_NAME:
        raise SpecError(
            f"{request.name}: more than {MOST_OF_A_NAME} declarations have this name, or {MOST_OF_A_WORD:,} mention it",
            span=request.locate(-1),
            hints=("write a function of another name that calls the one you mean",),
        )
    if request.note is not None:
        home = index(request.note.start)
        functions = [each for each in functions if each.has_body and index(each.line_start) == home] or functions
    free = [function for function in functions if not function.owner] or functions
    chosen = [function for function in free if function.has_body] or free
    for function in chosen[1:]:
        if function.has_body and index(chosen[0].line_start) != index(function.line_start):
            raise DuplicateEntryPointError(
                f"{function.name}: defined in two sources, first at {program.places.describe(chosen[0].start)}",
                span=at(function, program.places),
                hints=("rename one of them",),
            )
    same: dict[object, list[Function]] = {}
    for function in free:
        same.setdefault(function.signature, []).append(function)
    unique = {function.signature: function for function in reversed(chosen)}
    return [_with_defaults(function, same[signature]) for signature, function in reversed(unique.items())]


def _with_defaults(function: Function, same: Sequence[Function]) -> Function:
    """Add the default arguments of all declarations of `function`."""
    if len(same) < 2:
        return function
    declared = zip(*(other.params for other in same), strict=True)
    params = [
        param._replace(
            has_default=any(other.has_default for other in others),
            default=next((other.default for other in others if other.default), ()),
        )
        for param, others in zip(function.params, declared, strict=True)
    ]
    return function._replace(params=tuple(params))


def _only(request: _Request, functions: Sequence[Function]) -> Function:
    """Return the only function, or raise an error that names two functions."""
    if len(functions) == 1:
        return functions[0]
    places, (first, second, *_) = request.program.places, functions
    raise SpecError(
        f"{request.name}: two functions have this name, {first.call_name} at {places.describe(first.start)} "
        f"and {second.call_name} at {places.describe(second.start)}",
        span=at(second, places),
        hints=("write the tokens of the one you mean", "rename one of them"),
    )


def _no_overload(request: _Request, functions: Sequence[Function]) -> SpecError:
    """Return the error for a spec that fits no overload."""
    places = request.program.places
    where = " and ".join(places.describe(function.start) for function in functions)
    return SpecError(
        f"{request.name}: the arg_spec ({' '.join(request.tokens or ())}) does not fit any of the functions at {where}",
        span=at(functions[0], places),
    )


def _unseen(request: _Request) -> model.EntryPoint:
    """Return the entry point of a function that an undefined macro generates, or raise the error for a missing one."""
    note, program, places = request.note, request.program, request.program.places
    call = program.unknown_call_at(note.end) if note is not None else program.unknown_call_for(request.function)
    if call is None:
        raise _not_found(request)
    span = places.span(call.start, len(call.text))
    advice = f"the macro {call.text} is not defined in these sources, so its functions can't be read"
    if request.tokens is None:
        raise EntryPointNotFoundError(
            f"{request.name}: no definition found; {advice}",
            span=span,
            hints=(f"write the tokens: // @BE {request.name} arg ret",),
        )
    params, rules = _parse(request)
    for index, param in enumerate(params):
        if is_untyped(param):
            raise SpecError(
                f"{request.name}: the type of 'attr.{param.name}' is unknown; {advice}",
                span=request.locate(index) or span,
                hints=(f"write attr.{param.name}:TYPE",),
            )
    start = note.start if note is not None else call.start
    return model.EntryPoint(
        name=request.function,
        call_name=f"::{request.name}",
        params=params,
        source=places.source(start).name,
        line=places.line(start),
        rules=rules,
        doc=program.doc_above(start),
    )


def _not_found(request: _Request) -> EntryPointNotFoundError:
    """Return the error for a name that the sources do not define."""
    from difflib import get_close_matches

    program, places = request.program, request.program.places
    names = program.function_names()
    close = get_close_matches(request.function, names, n=3)
    hints = [f"did you mean {' or '.join(repr(name) for name in close)}?"] if close else []
    if program.is_mentioned(request.function):
        hints.append("it occurs in a comment, a string, a call or a disabled #if branch, but is not declared")
    if names and not close:
        hints.append(f"functions in the source: {', '.join(names[:10])}")
    if program.macros.unexpanded:
        where = places.describe(program.macros.unexpanded[0])
        hints.append(
            f"the macros at {where} were not expanded: the text, or the expansion of all macros, is too long; write "
            "the function without them, or divide the sources (the page 'Declare inputs and outputs' has the limits)"
        )
    sources = ", ".join(source.name for source in places.sources) or "no sources at all"
    return EntryPointNotFoundError(
        f"{request.name}: no function of this name in {sources}", span=request.locate(-1), hints=tuple(hints)
    )
