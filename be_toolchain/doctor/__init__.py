"""The doctor: finds, judges and tries the toolchain, and reports."""
