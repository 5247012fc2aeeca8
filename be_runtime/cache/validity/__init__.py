"""Whether an entry is still what its key promises. Imports `folder`."""
