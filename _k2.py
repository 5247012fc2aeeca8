from pathlib import Path

from tests.support.killing import *
from tests.support.killing import _CACHE

c = Cache(Path("/tmp/faults-k"))
for n in ("one", "two", "three"):
    c.load(n)
day = 0
for line in range(1, 500):
    day += 0.0001
    (c.store.root / "kernels-v1/pruning.json").unlink(missing_ok=True)
    s = child(lambda: c.prune(day, 10**9), line, _CACHE)()
    if s.startswith("lines"):
        print("prune", s)
        break
print(c.left(), os.listdir(c.store.root / "kernels-v1"))
for n in ("one", "two", "three"):
    c.load(n)
for line in range(1, 500):
    os.utime(c.headers["one"])
    s = child(lambda: c.load("one"), line, _CACHE)()
    if s.startswith("lines"):
        print("touch", s)
        break
print(c.left())
t = Tally("x", 0)
check_leftovers(c, t)
print(t.wrong)
