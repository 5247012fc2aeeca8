"""Live editing: modules that follow their sources, and names whose code can be exchanged."""
