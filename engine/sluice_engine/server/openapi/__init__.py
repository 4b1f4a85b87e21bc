"""The API as an OpenAPI document, generated from the fields that requests are checked by and the types of the answers.

`python -m sluice_engine.server.openapi --write` writes `openapi.json`, which the data port serves; `--check` compares.
"""
