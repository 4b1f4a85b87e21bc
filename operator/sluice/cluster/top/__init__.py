"""The live table of `sluice top`: scrape the engines through the API server, compute rows, show them again and again."""
