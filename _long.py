import sys, collections, time, itertools
from tests.support.fuzzing import *
from tests.support.faults import Tally, chance
from be_runtime.errors import BeRuntimeError
from be_runtime.spec import discover, SourceText, parse_spec

t = Tally("long", 0)
part, parts = int(sys.argv[1]), int(sys.argv[2])
worst = []
U = list(CPP) + list(SIGNS) + ["a", "a ", "a::", "f<", "f(", "f()", "int n{", "n,", "x y,"]
units = list(itertools.product(CPP, CPP))
with time_limit():
    for i, u in enumerate(units):
        if i % parts != part:
            continue
        unit = "".join(u)
        text = unit * (LARGEST // len(unit))
        for f in (None, ["f"]):
            b = time.thread_time()
            judge(t, (u, f), lambda: discover([SourceText(name="k.cu", text=text)], f), (BeRuntimeError,))
            worst.append((time.thread_time() - b, u, f))
            d = worst[-1]
            d[0] > 0.5 and print(d, flush=True)
        if i % 300 == part:
            print(i, len(t.wrong), flush=True)
for w in t.wrong:
    print(w[:200])
worst.sort(key=lambda r: -r[0])
print(worst[:30])
