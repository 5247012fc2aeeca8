"""Commands as values: flags, libraries, edges of a build. Pure. Imports `request`."""
