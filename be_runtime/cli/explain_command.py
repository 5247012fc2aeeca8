"""The command ``explain``: the causes and remedies of an error's code, or a list of all codes."""

from __future__ import annotations

import argparse

from be_runtime.cli.answer import Answer
from be_runtime.errors import ArgumentError
from be_toolchain.cli.error_page import explain, list_titles, titles


def run(arguments: argparse.Namespace) -> Answer:
    """Return a code's section of the page of errors; all codes with their titles without one.

    Raises
    ------
    ArgumentError
        No error has that code.
    """
    if arguments.code is None:
        return Answer(list_titles(), {"codes": titles()})
    try:
        text = explain(arguments.code)
    except ValueError as error:
        raise ArgumentError(str(error), hints=("pass the code at the end of an error's text",)) from None
    return Answer(text, {"code": arguments.code.upper(), "text": text})
