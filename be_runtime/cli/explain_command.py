"""The command ``explain``: the causes and remedies of an error's code."""

from __future__ import annotations

import argparse

from be_runtime.cli.answer import Answer
from be_runtime.errors import ArgumentError
from be_toolchain.cli.error_page import explain


def run(arguments: argparse.Namespace) -> Answer:
    """Say what the page of errors says of a code.

    Raises
    ------
    ArgumentError
        No error has that code.
    """
    try:
        text = explain(arguments.code)
    except ValueError as error:
        raise ArgumentError(str(error), hints=("pass the code at the end of an error's text",)) from None
    return Answer(text, {"code": arguments.code.upper(), "text": text})
