"""Programs under checks: checked mode and sanitizers, each in a process of its own, and one report of all."""
