"""The reference of the chart's values, made from the comments of values.yaml."""
