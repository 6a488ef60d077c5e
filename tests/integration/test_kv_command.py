"""`kvledger kv` as a user runs it: JSON and table, GPU and fleet, refusals in one line, quick and light."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.cli import main

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
NEXT = {
    "model_type": "qwen3_next", "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
    "head_dim": 256, "hidden_size": 2048, "full_attention_interval": 4, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144,
}  # fmt: skip
CONTRACT = {
    "bytes_per_token_per_gpu", "block_size_tokens", "num_blocks", "reported_tokens", "capacity_tokens",
    "max_concurrency", "starts", "largest_max_model_len", "rule",
}  # fmt: skip
GPU_CONTRACT = {"weights_bytes", "activation_bytes", "non_torch_bytes", "kv_bytes"}
GIB = 1 << 30
START_S = 0.5


def kv(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli", "kv", *options]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def answer(*options: str, cwd: Path) -> dict[str, Any]:
    done = kv(*options, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    """A folder with two models' config.json, and nothing else."""
    (tmp_path / "llama.json").write_text(json.dumps(LLAMA))
    (tmp_path / "next.json").write_text(json.dumps(NEXT))
    return tmp_path


def test_the_contract_and_the_worked_example(configs: Path) -> None:
    found = answer(
        "--model", "next.json", "--engine", "vllm", "--engine-version", "0.11.2", "--tp", "2",
        "--available-kv-bytes", "47878721024", "--max-model-len", "262144", cwd=configs,
    )  # fmt: skip
    assert found.keys() >= CONTRACT
    assert not found.keys() & GPU_CONTRACT
    assert (found["block_size_tokens"], found["num_blocks"], found["reported_tokens"]) == (544, 7162, 973_760)
    assert round(found["max_concurrency"], 2) == 14.77
    assert found["starts"] is True
    assert sorted(path.name for path in configs.iterdir()) == ["llama.json", "next.json"]  # kv makes no home


def test_a_length_that_does_not_fit_is_an_answer_without_a_gpu(configs: Path) -> None:
    found = answer("--model", "llama.json", "--available-kv-gib", "1", "--max-model-len", "9000", cwd=configs)
    assert found["starts"] is False
    assert found["largest_max_model_len"] == 8191 // 16 * 16


def test_a_gpu_gives_the_room_and_its_parts(configs: Path) -> None:
    h100 = ("--gpu", "H100-SXM-80GB", "--gpu-memory-utilization", "0.95", "--engine-version", "0.19")
    found = answer("--model", "llama.json", *h100, cwd=configs)
    assert found.keys() >= CONTRACT | GPU_CONTRACT
    assert found["reported_tokens"] == pytest.approx(476_016, rel=0.02)
    assert found["weights_bytes"] / GIB == pytest.approx(14.99, rel=0.02)
    assert found["activation_bytes"] / GIB == pytest.approx(1.89, rel=0.05)
    assert found["non_torch_bytes"] / GIB == pytest.approx(0.25, abs=0.01)
    assert found["kv_bytes"] / GIB == pytest.approx(58.11, rel=0.02)
    halved = answer("--model", "llama.json", *h100, "--kv-cache-dtype", "fp8", cwd=configs)
    assert halved["reported_tokens"] == pytest.approx(2 * found["reported_tokens"], abs=16)
    qwen = answer("--model", "Qwen/Qwen2.5-7B-Instruct", *h100, cwd=configs)
    assert qwen["reported_tokens"] == pytest.approx(1_096_000, rel=0.02)


def test_a_small_gpu(configs: Path) -> None:
    found = answer(
        "--model", "llama.json", "--gpu", "RTX-4090-24GB", "--gpu-memory-utilization", "0.9",
        "--max-num-batched-tokens", "2048", "--max-num-seqs", "256", cwd=configs,
    )  # fmt: skip
    assert found["num_blocks"] == pytest.approx(2588, rel=0.03)


def test_the_table_can_be_followed(configs: Path) -> None:
    done = kv("--model", "llama.json", "--available-kv-gib", "24", "--max-model-len", "32768", cwd=configs)
    assert done.returncode == 0
    for words in (
        "32 ×", "8 KV heads × (128 + 128) × 2 B", "4,096", "131,072 a token", "24.00 GiB ÷ 2.000 MiB = 12,288",
        "196,608 tokens", "6.00 requests of 32,768 tokens",
    ):  # fmt: skip
        assert words in done.stdout


def test_a_fleet_file_for_every_deployment(configs: Path) -> None:
    (configs / "fleet").mkdir()
    (configs / "llama.json").rename(configs / "fleet" / "llama.json")
    fleet = configs / "fleet" / "fleet.toml"
    fleet.write_text(
        """
[[deployments]]
name = "chat"
serves = ["a"]
model = "llama.json"
gpu = "H100-SXM-80GB"
[deployments.engine]
version = "0.19.0"
max_model_len = 32768

[[deployments]]
name = "agent"
serves = ["b"]
model = "meta-llama/Llama-3.1-70B-Instruct"
gpu = "H100-SXM-80GB"
[deployments.engine]
tensor_parallel_size = 4
kv_cache_memory_bytes = 10_000_000_000
"""
    )
    found = answer("--fleet", "fleet/fleet.toml", cwd=configs)["deployments"]
    assert [d["title"].split(":")[0] for d in found] == ["chat", "agent"]
    assert all(d.keys() >= CONTRACT | GPU_CONTRACT for d in found)
    assert (found[1]["kv_bytes"], found[1]["gpus_per_replica"]) == (10_000_000_000, 4)
    assert found[1]["bytes_per_token_per_replica"] == 80 * 2 * 8 * 128 * 2
    assert "agent: meta-llama" in kv("--fleet", "fleet/fleet.toml", cwd=configs).stdout
    fleet.write_text(fleet.read_text().replace("tensor_parallel_size = 4", "tensor_parallel_size = 3"))
    assert "deployment 'agent'" in kv("--fleet", "fleet/fleet.toml", cwd=configs).stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--available-kv-gib", "1"], ["--model", "--fleet"]),
        (["--model", "llama.json"], ["--available-kv-bytes", "--gpu"]),
        (["--model", "llama.json", "--available-kv-gib", "1", "--gpu", "H100-SXM-80GB"], ["exactly once"]),
        (["--model", "absent.json", "--available-kv-gib", "1"], ["absent.json", "does not exist"]),
        (["--model", "llama.json", "--available-kv-gib", "1", "--tp", "3"], ["do not divide over TP 3"]),
        (["--model", "llama.json", "--available-kv-gib", "1", "--engine-version", "0.99"], ["0.99", "0.33"]),
        (["--model", "llama.json", "--available-kv-gib", "1", "--kv-cache-dtype", "fp9"], ["fp9", "known are"]),
        (["--model", "llama.json", "--gpu", "H100-SXM-80GB", "--max-model-len", "2000000"], ["largest that fits"]),
        (["--model", "meta-llama/Llama-3.1-70B-Instruct", "--gpu", "H100-SXM-80GB"], ["do not fit", "is 2"]),
        (["--model", "llama.json", "--gpu", "H100-SXM-90GB"], ["H100-SXM-90GB", "did you mean"]),
        (["--fleet", "absent.toml"], ["absent.toml"]),
        (["--fleet", "absent.toml", "--tp", "2"], ["drop the other options"]),
        (["--model", "llama.json", "--available-kv-gib", "none"], ["--available-kv-gib"]),
    ],
)
def test_refusals_are_one_line_and_exit_2(
    configs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    words: list[str],
) -> None:
    """Run `main` in this process: starting Python for each refusal would take most of the time."""
    monkeypatch.chdir(configs)
    monkeypatch.setattr(sys, "argv", ["kvledger", "kv", *options, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (2, "")
    assert len(printed.err.strip().splitlines()) == 1
    assert all(word in printed.err for word in words), printed.err


def test_a_refusal_leaves_the_process_with_2(configs: Path) -> None:
    done = kv("--model", "llama.json", "--available-kv-gib", "1", "--tp", "3", "--json", cwd=configs)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kvledger: llama.json: 32 attention heads")


def test_kv_imports_nothing_heavy(configs: Path) -> None:
    code = (
        "import sys\n"
        "sys.argv = ['kvledger', 'kv', '--model', 'llama.json', '--gpu', 'H100-SXM-80GB', '--json']\n"
        "from flows.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'numpy', 'polars', 'duckdb', 'pyarrow', 'numba', 'altair', 'prefect', 'pandas'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=configs, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_kv_answers_in_half_a_second(configs: Path) -> None:
    """Count the processor's time, which is the wait on an idle machine whatever else runs on this one."""
    took_s = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer("--model", "llama.json", "--gpu", "H100-SXM-80GB", cwd=configs)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if took_s[-1] < START_S:
            return
    assert min(took_s) < START_S
