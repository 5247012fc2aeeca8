"""The machine behind an interface: files, processes, requests to web servers. Imports `errors` and `terminal`."""
