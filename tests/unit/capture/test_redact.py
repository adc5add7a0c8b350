"""Secrets never reach a recording, and what matters for performance does."""

import json
import shlex
import time

import pytest

from perfdoctor.capture.redact import (
    LONGEST_COMMAND,
    LONGEST_LINE,
    mask_command,
    mask_environment,
    mask_source,
    mask_text,
)

SECRET = "s3cr3t-Value_77"
HUGGING_FACE = "hf_" + "aB3" * 12
GITHUB = "ghp_" + "Zz9" * 12
AWS_ID = "AKIA" + "ABCDEFGH12345678"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzz123"
WANDB = "0123456789abcdef0123456789abcdef01234567"
WEB_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123456"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py", "--token", SECRET],
        ["train.py", f"--token={SECRET}"],
        ["train.py", "--hf-token", SECRET],
        ["train.py", "--hub_token", SECRET],
        ["train.py", f"--password={SECRET}"],
        ["train.py", "--dbPassword", SECRET],
        ["train.py", "--api-key", SECRET],
        ["train.py", "--apikey", SECRET],
        ["train.py", "-password", SECRET],
        ["train.py", f"wandb.api_key={SECRET}"],
        ["train.py", f"+logger.secret={SECRET}"],
        ["env", f"AWS_SECRET_ACCESS_KEY={SECRET}", "python", "train.py"],
        ["python", "-c", f"login(token='{SECRET}'); train()"],
        ["python", "-c", f'config = {{"password": "{SECRET}", "lr": 1}}'],
        ["bash", "-c", f"python train.py --token {SECRET} --lr 1"],
        ["curl", "-H", f"Authorization: Bearer {SECRET}"],
        ["curl", "-H", f"X-Api-Key: {SECRET}"],
        ["curl", "-u", f"me:{SECRET}", "http://host"],
        ["train.py", f"https://me:{SECRET}@host/data"],
        ["train.py", f"https://{SECRET}@host/data"],
        ["train.py", f"postgres://me:p/{SECRET}@host/db"],
        ["train.py", f"https://bucket/shard.tar?X-Amz-Signature={SECRET}&X-Amz-Expires=60"],
        ["train.py", f"https://bucket/shard.tar?sv=1&sig={SECRET}"],
        [b"train.py", b"--token", SECRET.encode()],
        ["env", f"PGPASSWORD={SECRET}", "python", "train.py"],
        ["env", f"SSHPASS={SECRET}", "python", "train.py"],
        ["train.py", f"--dbpassword={SECRET}"],
        ["train.py", "--passwords", SECRET],
        ["train.py", "--db-pass", SECRET],
        ["bash", "-c", f"DB_PASS={SECRET} python train.py"],
        ["train.py", f"--authtoken={SECRET}"],
        ["train.py", "--accesstoken", SECRET],
        ["train.py", "--kaggle-key", SECRET],
        ["train.py", "--hmac_key", SECRET],
        ["train.py", f"--wandb.api.key={SECRET}"],
        ["train.py", "--jwt", SECRET],
        ["train.py", "--vault-secret-id", SECRET],
        ["train.py", f"https://host/data?key={SECRET}&page=1"],
        ["train.py", f"https://hooks.slack.com/services/T0001/B0001/{SECRET}"],
        ["train.py", f"https://discord.com/api/webhooks/1234/{SECRET}"],
        ["train.py", f"https://acme.webhook.office.com/webhookb2/{SECRET}"],
        ["train.py", f"https://api.telegram.org/bot123456789:{SECRET:a>35}/getMe"],
        ["train.py", "--telegram", f"123456789:{SECRET:a>35}"],
    ],
)
def test_named_secrets_are_masked(arguments: list[str]) -> None:
    shown = mask_command(arguments)
    assert SECRET not in shown
    assert "***" in shown


@pytest.mark.parametrize("secret", [HUGGING_FACE, GITHUB, AWS_ID, AWS_SECRET, WANDB, WEB_TOKEN])
@pytest.mark.parametrize("template", ["{}", "--login={}", "login('{}')", "a {} b", "--x\n{}\n"])
def test_shapes_of_tokens_are_masked(secret: str, template: str) -> None:
    shown = mask_command(["train.py", template.format(secret)])
    assert secret not in shown
    assert secret[6:] not in shown


def test_what_follows_a_secret_stays() -> None:
    assert mask_command(["t.py", "--token", SECRET, "--lr", "0.1"]) == "t.py --token *** --lr 0.1"
    assert mask_command(["t.py", "--use-token", "--lr", "0.1"]) == "t.py --use-token --lr 0.1"
    assert mask_command(["git", f"https://me:{SECRET}@host/x"]) == "git https://***@host/x"


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "python",
            "-u",
            "train.py",
            "--tokenizer",
            "gpt2",
            "--max-tokens",
            "512",
            "--author",
            "me",
            "--key-dim=64",
        ],
        [
            "torchrun",
            "--nproc_per_node=8",
            "--rdzv_endpoint=node01:29500",
            "train.py",
            "--batch-size",
            "32",
            "--lr=1e-3",
        ],
        [
            "python",
            "train.py",
            "--data",
            "/data/imagenet/train/n01440764/n01440764_10026.JPEG",
            "model.num_tokens=1024",
        ],
        [
            "python",
            "-c",
            "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)",
        ],
        ["python", "train.py", "--url", "https://host.example:8080/path/shard-000.tar"],
        ["python", "train.py", "--num-tokens", "1024", "--pass=2", "--forward-pass", "7", "--detoken=1", "--key", "q"],
        ["python", "train.py", "--bypass=1", "--compass", "3", "--num_passes=4", "--start", "2026-01-01T10:00:00"],
    ],
)
def test_ordinary_arguments_are_left_alone(arguments: list[str]) -> None:
    assert shlex.split(mask_command(arguments)) == arguments


def test_invalid_utf8_can_be_written() -> None:
    shown = mask_command([b"train.py", b"--name=\xff\xfe", "b\udcff"])
    json.dumps(shown).encode("utf-8")
    shown.encode("utf-8")
    assert shown.startswith("train.py --name=")


def test_long_command_lines_are_cut_and_quick() -> None:
    began = time.monotonic()
    for text in (
        "a" * 2_000_000,
        "a://" * 500_000,
        "token=" * 300_000,
        "-" * 2_000_000,
        "a_" * 1_000_000,
        " " * 2_000_000,
    ):
        assert len(mask_command([text])) <= LONGEST_COMMAND
    assert time.monotonic() - began < 10


def test_environment_keeps_what_matters_and_nothing_else() -> None:
    kept = mask_environment(
        {
            "OMP_NUM_THREADS": "4",
            "RANK": "1",
            "TORCHELASTIC_RUN_ID": "none",
            "NCCL_DEBUG": "INFO",
            "HOME": "/home/me",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "WANDB_API_KEY": SECRET,
            "PYTHONHASHSEED": "0",
            "RANKING": "7",
        }
    )
    assert kept == {"OMP_NUM_THREADS": "4", "RANK": "1", "TORCHELASTIC_RUN_ID": "none", "NCCL_DEBUG": "INFO"}


def test_secrets_in_kept_variables_are_masked() -> None:
    kept = mask_environment({"TORCH_HUB_TOKEN": SECRET, "NCCL_X": f"http://me:{SECRET}@proxy", "OMP_X": HUGGING_FACE})
    assert kept["TORCH_HUB_TOKEN"] == "***"
    assert SECRET not in json.dumps(kept)
    assert HUGGING_FACE not in json.dumps(kept)


def test_private_keys_are_masked_whole() -> None:
    text = "x -----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY----- y"
    assert mask_text(text) == "x *** y"


@pytest.mark.parametrize(
    "line",
    [
        f'API_TOKEN = "{SECRET}"',
        f"os.environ['HF_TOKEN'] = '{SECRET}'",
        f'token: str = "{SECRET}"',
        f'def connect(host, password="{SECRET}"):',
        f'headers = {{"Authorization": f"Token {SECRET}"}}',
        f"wandb.login(key={WANDB!r})",
        f'fs = s3fs.S3FileSystem(key="{AWS_ID}", secret="{SECRET}")',
        f'db_password = """{SECRET}',
        f"open_store('https://me:{SECRET}@host/data')",
    ],
)
def test_secrets_in_source_are_masked(line: str) -> None:
    shown = mask_source(["import os", line, "train()"], [0, 1, 2])
    assert SECRET not in shown[1]
    assert WANDB not in shown[1]
    assert "***" in shown[1]
    assert (shown[0], shown[2]) == ("import os", "train()")


def test_a_secret_below_its_name_and_a_key_of_several_lines_are_masked() -> None:
    lines = [
        "API_KEY = (",
        f'    "{SECRET}"',
        ")",
        'KEY = """-----BEGIN RSA PRIVATE KEY-----',
        "MIIEow",
        "-----END RSA PRIVATE KEY-----",
    ]
    shown = mask_source([*lines, '"""', "x = 1"], [1, 4, 7])
    assert shown == {1: '    "***"', 4: "***", 7: "x = 1"}


def test_a_text_that_begins_below_its_name_is_masked() -> None:
    assert mask_source(['TOKEN = """', SECRET, '"""'], [1]) == {1: "***"}
    assert mask_source(["headers = {'api_key':", f"    '{SECRET}'}}"], [1]) == {1: "    '***'}"}


def test_source_that_is_no_secret_stays_as_it_is() -> None:
    lines = [
        'ids = tokenizer("a text", max_tokens=7)',
        "key = jax.random.split(key)",
        'for name in ("query", "key"):',
        "for token in tokens:",
        '    text = " ".join(words)',
    ]
    assert list(mask_source(lines, range(5)).values()) == lines


def test_long_lines_of_source_are_cut_and_looked_through_in_time() -> None:
    (shown,) = mask_source(["token = '" + "a.b=" * 500_000], [0]).values()
    assert len(shown) <= LONGEST_LINE
