"""Files that a build read or looked for: depfiles, and records of a preloaded library. Imports `plan` and `cache`."""
