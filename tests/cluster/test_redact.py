"""What is removed from objects and logs, and what an engineer still needs to see."""

from typing import Any

import pytest

from sluice.cluster.report.redact import REDACTED, Redactor


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.def-ghi", "abc.def-ghi"),
        ('{"authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
        ("key sk-LkJS8cb0pcGxKOAKye8FrNF-n5PK0IcaBg-Or4vEZuM is wrong", "LkJS8cb0pcGxKOAKye8FrNF"),
        ("downloading with hf_abcdefghijklmnopqrst", "abcdefghijklmnopqrst"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
        ("aws said wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "bPxRfiCYEXAMPLEKEY"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("GET https://user:hunter2@host/models", "hunter2"),
        ("password=hunter2&x=1", "hunter2"),
        ('"db_password": "two words"', "two words"),
        ("password: 123456", "123456"),
        (r'{"body": "{\"password\": \"two words\"}"}', "two words"),
        ("step: token=letmein", "letmein"),
        ("api-key: letmein", "letmein"),
        ("a digest 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "9f86d081884c"),
        ("random Zk3vQ9xW1pLr8TnB5yHd end", "Zk3vQ9xW1p"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\nabc", "MIIE"),
    ],
)
def test_a_secret_is_removed_from_a_text(text: str, secret: str) -> None:
    redactor = Redactor()
    found = redactor.text(text)
    assert secret not in found and REDACTED in found
    assert redactor.count >= 1


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens=512 token_count: 3 max_tokens: 16",
        "SecretNotFound: Secret hf-token does not exist. Create it.",
        "--admin-token-file=/etc/sluice/admin/token",
        "image sluice/engine@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "pod chat-7d9c8b6f5d-x2x8z of uid 5f7d1c8e-0000-4000-8000-000000000001",
        "loaded /models/Qwen3-8B-Instruct-2507 in 41.2 s",
        "2026-11-21T09:00:00.123456Z 3 → 4 replicas: the queue grows.",
    ],
)
def test_what_an_engineer_needs_is_kept(text: str) -> None:
    redactor = Redactor()
    assert (redactor.text(text), redactor.count) == (text, 0)


def test_values_are_redacted_by_the_name_of_their_variable_option_or_field() -> None:
    thing: dict[str, Any] = {
        "env": [
            {"name": "DB_PASSWORD", "value": "plain1"},
            {"name": "SLUICE_KEY_SECRET", "value": "sluice-key"},
            {"name": "LEVEL", "value": "debug"},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        ],
        "args": ["serve", "--api-key", "plain2", "--port=80", "--api-key=plain3"],
        "apiKey": "plain4",
        "tokenSecretRef": {"name": "hf", "key": "token"},
        "automountServiceAccountToken": False,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    assert Redactor().object(thing) == thing | {
        "env": [{"name": "DB_PASSWORD", "value": REDACTED}, *thing["env"][1:]],
        "args": ["serve", "--api-key", REDACTED, "--port=80", f"--api-key={REDACTED}"],
        "apiKey": REDACTED,
    }


def test_the_record_of_earlier_writes_is_dropped_and_identifiers_stay() -> None:
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"}
    thing = {"metadata": {"managedFields": [{}], "annotations": annotations}, "containerID": f"containerd://{digest}"}
    assert Redactor().object(thing) == {
        "metadata": {"annotations": {"kept": "yes"}},
        "containerID": f"containerd://{digest}",
    }


def test_an_identifier_is_no_place_for_a_password() -> None:
    assert Redactor().object({"uri": "s3://me:hunter2@bucket"}) == {"uri": f"s3://{REDACTED}@bucket"}


def test_a_value_that_was_redacted_in_an_object_is_removed_from_later_texts() -> None:
    redactor = Redactor()
    redactor.object({"name": "PASSPHRASE", "value": "correct horse"})
    assert redactor.text("opening with correct horse now") == f"opening with {REDACTED} now"


@pytest.mark.parametrize(
    "unit", ["a", "a-", "token", "token: ", '"key": "', "://x", "-----BEGIN PRIVATE KEY-----", "eyJ."]
)
def test_a_hostile_log_of_a_megabyte_is_read_within_the_timeout_of_a_test(unit: str) -> None:
    assert len(Redactor().text(unit * (1_000_000 // len(unit)))) > 0


def test_the_id_of_a_request_stays() -> None:
    line = '{"message":"chat 200: 12 ms, id 0123456789abcdef0123456789abcdef","request":"0123456789abcdef0123456789abcdef"}'
    assert Redactor().text(line) == line
    assert "0123456789abcdef0123456789abcdef" not in Redactor().text('{"found":"0123456789abcdef0123456789abcdef"}')
