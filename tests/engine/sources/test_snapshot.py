"""What is chosen of a source's listing, and what its errors say: no path out of the folder, no credentials."""

from sluice import contract
from sluice_engine.sources.errors import SourceError
from sluice_engine.sources.snapshot import RemoteFile, choose

URI = "hf://org/name"
WANTED = ("config.json", "1_Pooling/config.json", "additional_chat_templates/tool_use.jinja", "model.safetensors")
REFUSED = (
    "1_x/../../../../victim/config.json", "additional_chat_templates/../../evil.jinja", "1_a/b/config.json",
    "additional_chat_templates/a/b.jinja", "../config.json", "/config.json", "/1_Pooling/config.json", "../model.safetensors",
)  # fmt: skip


def test_no_name_leads_out_of_the_models_folder() -> None:
    listing = [RemoteFile(name, 1) for name in (*WANTED, *REFUSED)]
    assert {file.name for file in choose(URI, listing)} == set(WANTED)


def test_credentials_of_an_endpoint_are_in_no_message() -> None:
    error = SourceError(
        contract.REASON_RATE_LIMITED, "https://user:secret@mirror.example/a answered 500 for hf://org/name@main."
    )
    assert str(error) == error.message == "https://mirror.example/a answered 500 for hf://org/name@main."
