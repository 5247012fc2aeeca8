"""The machine behind a port: files, processes, and requests to web servers. Imports `errors` and `terminal`."""
