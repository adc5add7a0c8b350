"""Hides secrets in command lines, environments and source lines before they reach a recording.

Used while recording: standard library only. Where in doubt it masks: a hidden batch size costs nothing,
a shown password does.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

MASK = "***"

# Characters kept of a masked command line: enough for every launcher, small enough for a report.
LONGEST_COMMAND = 4_096
# Characters kept of one environment variable.
LONGEST_VALUE = 1_024

# Characters kept of one line of source.
LONGEST_LINE = 240

# Text beyond this is not even searched, so that a 2 MB command line (ARG_MAX) cannot hold up the recorder.
_LONGEST_SEARCHED = 4 * LONGEST_COMMAND

_KEEP = """
OMP_* MKL_* OPENBLAS_* BLIS_* NUMEXPR_* KMP_* GOMP_* VECLIB_* OPENCV_* GOTO_NUM_THREADS
RAYON_NUM_THREADS TOKENIZERS_PARALLELISM POLARS_MAX_THREADS ARROW_* DNNL_* ONEDNN_* ATEN_*

TORCH_* TORCHELASTIC_* TORCHINDUCTOR_* TORCHDYNAMO_* PYTORCH_* CUDA_* CUBLAS_* CUBLASLT_* CUDNN_*
NVIDIA_TF32_OVERRIDE NVIDIA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
NCCL_* GLOO_* UCX_* FI_* KINETO_* TRITON_* ACCELERATE_*

RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK ROLE_RANK NODE_RANK MASTER_ADDR MASTER_PORT
SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_STEP_NUM_TASKS
SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_CPU_BIND OMPI_COMM_WORLD_* MV2_COMM_WORLD_* PMI_RANK PMI_SIZE
MPI_LOCALRANKID MPI_LOCALNRANKS PMIX_RANK PMIX_NAMESPACE RAY_JOB_ID
torch.distributed.get_rank() torch.distributed.get_world_size() init_process_group.init_method

PYTHONMALLOC PYTHONDEVMODE PYTHONTRACEMALLOC PYTHONASYNCIODEBUG PYTHONUNBUFFERED PYTHONOPTIMIZE
PYTHON_GIL PYTHON_JIT MALLOC_* LD_PRELOAD TMPDIR HF_DATASETS_IN_MEMORY_MAX_SIZE
"""
KEEP: tuple[str, ...] = tuple(_KEEP.split())
"""Environment variables that matter for performance, in groups: numeric libraries and their threads; torch,
CUDA and communication; who is who; the interpreter and the allocator. A final ``*`` stands for any ending."""

# The last word of a name decides ("hub_token", "dbPassword", "wandb.api_key"), so that --tokenizer,
# --max-tokens and --author stay legible. The first ones are told also where nothing parts them from the word before
# ("PGPASSWORD", "authtoken").
_SECRET_WORD = (
    r"(?:[a-z0-9]{0,64}(?:passwords?|passwd|passphrase|passcode|secrets?|credentials?"
    r"|(?:db|sql|pg|ssh|smtp|mail|ftp|redis|mongo|user|root|admin|login|http|proxy)[-_]?pass"
    r"|(?:access|api|auth|bearer|hf|hub|id|refresh|session)token)"
    r"|token|pwd|auth|authorization|cookie|signature|sig|sas|jwt|secret[-_]?id"
    r"|(?:api|access|private|secret|shared|account|storage|encryption|license|signing|session|auth|ssh|hmac|master"
    r"|wandb|comet|neptune|openai|hf|kaggle)[-_.]?key|connection[-_]?string|webhook(?:[-_]?url)?)"
)
_SECRET_NAME = re.compile(rf"(?:^|[-_.\s/+~]|(?<=[a-z0-9])(?=[A-Z])){_SECRET_WORD}$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OPTION = re.compile(r"^-{1,2}([A-Za-z][\w.-]*)$")
_USER_OPTIONS = ("-u", "--user", "--proxy-user")

# name=value, name: value and "name": "value" inside longer texts (Python code, JSON, shell lines, hydra
# overrides), then --name value.
_ASSIGNED = re.compile(
    rf"(?P<name>(?<![A-Za-z0-9])(?:[A-Za-z0-9]{{1,64}}[-_.]){{0,8}}{_SECRET_WORD}[\"']?\s{{0,4}}(?:[=:]\s{{0,4}}|\s))"
    r"(?P<value>(?:bearer|basic|token)\s+[^\s\"',;}]+|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
    r"|(?<=[=:])[^\s\"',;&}]+|(?<=[=:] )[^\s\"',;&}]+)",
    re.IGNORECASE,
)
_SPACED_OPTION = re.compile(
    rf"(?P<name>(?<!\S)--?(?:[A-Za-z0-9]{{1,64}}[-_.]){{0,8}}{_SECRET_WORD}\s+)(?P<value>[^\s\-][^\s\"']*)",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(?<=://)(?:[^\s/?#\"'@]{0,512}|[^\s:/@\"']{1,256}:[^\s\"']{1,1024})@")
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"  # PEM
    r"|\b(?:AKIA|ASIA|AGPA|AROA)[0-9A-Z]{12,}"  # AWS access key id
    r"|\b(?:hf|api_org)_[A-Za-z0-9]{16,}"  # Hugging Face
    r"|\b(?:gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,})"  # GitHub
    r"|\bglpat-[\w-]{12,}|\bnpm_[A-Za-z0-9]{16,}|\bpypi-[\w-]{16,}|\bnvapi-[\w-]{16,}|\bdop_v1_\w{16,}"
    r"|\bwandb_v\d_\w{16,}|\b(?:local-)?[0-9a-f]{40}\b"  # Weights & Biases (and commit ids, alas)
    r"|\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]+[-_])*[A-Za-z0-9]{16,}"  # OpenAI, Anthropic, Stripe
    r"|\bxox[a-z]-[\w-]{10,}|\bSG\.[\w-]{10,}\.[\w-]{10,}"  # Slack, SendGrid
    r"|\bAIza[\w-]{30,}|\bya29\.[\w-]{10,}"  # Google
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"  # JSON web token
    r"|(?<=hooks\.slack\.com/)[\w/-]+|(?<=/api/webhooks/)[\w/-]+|(?<=\.webhook\.office\.com/)[^\s\"']+"  # and Discord
    r"|\b(?:bot)?\d{8,10}:[\w-]{35}(?![\w-])"  # Telegram
    r"|(?<=[?&]key=)[^\s\"'&]+"  # Google, in addresses
    r"|(?<![\w./+-])(?=[A-Za-z0-9/+]{0,39}[a-z])(?=[A-Za-z0-9/+]{0,39}[A-Z])(?=[A-Za-z0-9/+]{0,39}[0-9])"
    r"[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![\w./+-])",  # AWS secret access key
    re.DOTALL,
)
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
# What stands in quotes, in Python; up to the end of the line where that ends within.
_STRING = re.compile(r"""("{3}|'{3}|["'])(?:[^\\]|\\.)*?(?:\1|$)""")
# How a line ends whose value stands on the next one; inside of a text of several lines, or before it.
_GOES_ON = re.compile(r"""(?:(?P<text>"{3}|'{3})|[=(\[{\\]|["']\s*:)\s*$""")
_SCHEME = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)


def mask_command(arguments: Sequence[str | bytes]) -> str:
    """A command line as one text, secrets masked and cut to ``LONGEST_COMMAND`` characters.

    Args:
        arguments: the arguments as the kernel reports them; need not be valid UTF-8.
    """
    shown: list[str] = []
    hide_next = False
    previous = ""
    for raw in arguments:
        argument = _text(raw)
        user_and_password = previous in _USER_OPTIONS and ":" in argument
        shown.append(MASK if (hide_next and not argument.startswith("-")) or user_and_password else argument)
        option = _OPTION.match(argument)
        hide_next = option is not None and _names_a_secret(option.group(1))
        previous = argument
    return mask_text(" ".join(map(_as_typed, shown)))[:LONGEST_COMMAND]


def _as_typed(argument: str) -> str:
    """An argument with blanks in it stands in quotes, as it was typed."""
    return f'"{argument}"' if " " in argument and '"' not in argument else argument


def mask_environment(
    environment: Mapping[str, str],
) -> dict[str, str]:
    """Of all variables of a process those that matter for performance (``KEEP``), by name, secrets masked."""
    prefixes = tuple(name[:-1] for name in KEEP if name.endswith("*"))
    kept = (name for name in sorted(environment) if name in KEEP or name.startswith(prefixes))
    return {
        _text(name): MASK if _names_a_secret(name) else mask_text(_text(environment[name]))[:LONGEST_VALUE]
        for name in kept
    }


@lru_cache(maxsize=512)  # the processes of a job have the same commands and variables, by the hundred
def mask_text(text: str) -> str:
    """A text with everything masked that looks like a secret."""
    text = _text(text)[:_LONGEST_SEARCHED]
    text = _SHAPES.sub(MASK, text)
    text = _URL_PASSWORD.sub(f"{MASK}@", text)
    text = _ASSIGNED.sub(_mask_value, text)
    text = _SPACED_OPTION.sub(rf"\g<name>{MASK}", text)
    return _SCHEME.sub(rf"\1\2{MASK}", text)


def mask_source(lines: Sequence[str], wanted: Iterable[int]) -> dict[int, str]:
    """Lines of a source file with everything masked that looks like a secret, each cut to ``LONGEST_LINE`` characters.

    In source a secret is named in more ways than in a command (``os.environ["TOKEN"] = "…"``, ``token: str = "…"``),
    and may stand on the line below its name: all that stands in quotes is masked there.

    Args:
        lines: of the whole file: a private key may begin above the lines that are wanted.
        wanted: indices of lines.
    """
    keys = _private_keys(lines)
    return {at: MASK if at in keys else _mask_line(lines, at)[:LONGEST_LINE] for at in wanted}


def _mask_line(lines: Sequence[str], at: int) -> str:
    line, above = lines[at][:_LONGEST_SEARCHED], lines[at - 1][:_LONGEST_SEARCHED] if at else ""
    goes_on = _GOES_ON.search(above) if _holds_a_secret_name(above) else None
    if goes_on is not None and goes_on["text"]:
        return MASK
    if goes_on is not None or _holds_a_secret_name(line):
        line = _STRING.sub(lambda match: f"{match[1]}{MASK}{match[1]}", line)
    return mask_text(line)


def _holds_a_secret_name(line: str) -> bool:
    return any(_names_a_secret(name) for name in _NAME.findall(line))


def _private_keys(lines: Sequence[str]) -> set[int]:
    """Indices of the lines that private keys stand on."""
    found, inside = set(), False
    for at, line in enumerate(lines):
        inside = inside or _KEY_BEGINS.search(line) is not None
        if inside:
            found.add(at)
            inside = _KEY_ENDS.search(line) is None
    return found


def _mask_value(match: re.Match[str]) -> str:
    """The name as it was, its value masked; quotes are kept so that the rest stays readable."""
    value = match["value"]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{quote}{MASK}{quote}"


@lru_cache(maxsize=512)
def _names_a_secret(name: str) -> bool:
    return _SECRET_NAME.search(_CAMEL.sub("_", name)) is not None


def _text(value: str | bytes) -> str:
    """Text that can be written as UTF-8: what was not valid shows as a question mark."""
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    return text.encode("utf-8", "replace").decode("utf-8")
