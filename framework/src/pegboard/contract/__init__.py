"""What authors of plugins write against: specs, records, results, tricks and their order, hooks. No torch."""
