"""The scores, bars, tables, text and pictures of the corpus."""
