"""Programs under checks: one runs under each tool in a process of its own, and the reports become one."""
