import sys, collections, time, random
from tests.support.fuzzing import *
from tests.support.faults import Tally, chance
from be_runtime.errors import BeRuntimeError
from be_runtime.spec import discover, SourceText, parse_spec, render_spec

what, n, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
t = Tally(what, seed)
rng = chance(seed)
began = time.time()
taken = 0
with time_limit():
    for i in range(n):
        if what == "specs":
            tokens = arg_spec(rng)

            def call():
                a = parse_spec(tokens, function="f")
                b = render_spec(a)
                assert repr(parse_spec(b)) == repr(a), ("round trip", b)

            taken += judge(t, tokens, call, (BeRuntimeError,))
        else:
            text = source(rng)
            f = wanted_functions(rng, text)
            taken += judge(t, (text, f), lambda: discover([SourceText(name="k.cu", text=text)], f), (BeRuntimeError,))
print(t.tried, len(t.wrong), taken, time.time() - began)
c = collections.Counter(w.split(":")[0][:60] for w in t.wrong)
print(c)
seen = collections.Counter()
for w in t.wrong:
    k = w.split(" after ")[0][:40]
    seen[k] += 1
    if seen[k] < 4:
        print(w[:500])
