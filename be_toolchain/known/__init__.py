"""Facts that hold on every machine: layouts, versions, formats. Imports `machine` and values."""
