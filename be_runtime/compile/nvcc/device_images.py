"""Device code in a host object, inserted by the assembler, so that the host compiler need not wait for it. Pure.

Nvcc's host side includes fatbinary's output as text. Here it includes an equivalent text that names the binary file
which fatbinary also writes; the assembler reads that file once it exists. The registered symbol is the wrapper of the
toolkit's ``fatbinary_section.h``.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

from be_runtime.compile.plan.build_plan import Edge, GeneratedFile

_STAND_IN = r"""#include "fatbinary_section.h"
#define __CUDAFATBINSECTION ".nvFatBinSegment"
#define __CUDAFATBINDATASECTION ".nv_fatbin"
asm(
    ".section .nv_fatbin, \"a\"\n"
    ".align 8\n"
    "fatbinData:\n"
    ".incbin \"%s\"\n"
    ".text\n");
extern "C" {
extern const unsigned long long fatbinData[];
static const __fatBinC_Wrapper_t __fatDeviceText
    __attribute__((aligned(8), section(__CUDAFATBINSECTION))) = {0x466243b1, 1, fatbinData, 0};
}
"""


class DeviceImages(NamedTuple):
    """The two files to which fatbinary writes the device code of a source.

    Parameters
    ----------
    data, text : str
        The binary file, and the text that the host side includes.
    """

    data: str
    text: str

    def apart(self, edge: Edge) -> Edge:
        """Rename the text in fatbinary's command, so that no command reads it. Return other commands unchanged."""
        if edge.tool != "fatbinary":
            return edge
        unread = f"{self.text}.unread"
        argv = tuple(part.replace(self.text, unread) for part in edge.argv)
        return edge._replace(argv=argv, outputs=(self.data, unread))

    def stand_in(self) -> GeneratedFile:
        """Return the file that the host side includes instead."""
        return GeneratedFile(path=self.text, text=_STAND_IN % self.data)

    def assembled(self, compilation: Edge) -> tuple[Edge, Edge]:
        """Split the host compiler's command in two. Only the second one waits for the device code."""
        (target,) = compilation.outputs
        assembly = str(PurePath(self.text).parent / f"{PurePath(target).stem}.s")
        argv = tuple({"-c": "-S", target: assembly}.get(part, part) for part in compilation.argv)
        inputs = tuple(name for name in compilation.inputs if name not in self)
        machine = (part for part in compilation.argv if part.startswith(("-m", "-Wa,")))
        return (
            compilation._replace(argv=argv, inputs=inputs, outputs=(assembly,)),
            Edge(
                argv=(compilation.argv[0], *machine, "-c", assembly, "-o", target),
                inputs=(assembly, self.data),
                outputs=(target,),
                description=f"{compilation.description}, assembling",
                tool="assemble",
            ),
        )


def device_images(data: str | None, text: str | None) -> DeviceImages | None:
    """Return fatbinary's output files; None if one is missing or the assembler can't read the binary file's name."""
    if not data or not text or any(char in '"\\%\n' for char in data):
        return None
    return DeviceImages(data, text)
