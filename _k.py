import sys
import time
from pathlib import Path

from tests.support.killing import run

b = time.time()
t = run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
print(t.row(), time.time() - b)
for w in t.wrong[:3]:
    print(w)
