"""Knowledge of toolkits that needs no look at the machine: layouts, versions, formats. Imports `machine` and values."""
