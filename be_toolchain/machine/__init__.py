"""The machine behind a port: files, processes, and whose files to believe. Imports `errors` and `terminal`."""
