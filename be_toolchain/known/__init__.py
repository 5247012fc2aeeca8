"""What is known of toolkits without looking: layouts, versions, formats. Imports `machine` and values."""
