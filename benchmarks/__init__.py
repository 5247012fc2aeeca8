"""How fast the toolchain is: each figure measured against what it is compared with, in one run.

``python -m benchmarks --help`` says how to run it, README.md how each figure is taken.
"""
