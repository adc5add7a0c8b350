"""What kernels tell: which take the time, and whether they use what the GPU and PyTorch offer."""

from pathlib import Path

import pytest

from perfdoctor.traces.account import account_for
from perfdoctor.traces.kernel_stats import measure_kernels, shorten, time_kernels, top_named
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import ELEMENTWISE, GEMM, MAIN, MadeTrace, diagnose_traces
from tests.files import real

SGEMM = "ampere_sgemm_128x64_tn"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t> >(Params)"
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false>(float*, float const*)"


def made(*kernels: tuple[str, float]) -> MadeTrace:
    """Kernels one after the other, each with its microseconds."""
    trace = MadeTrace()
    trace.gpu()
    at = 1000.0
    for name, taken in kernels:
        trace.launch(name, at - 10, at, at + taken)
        at += taken
    return trace


def numbers(trace: MadeTrace, folder: Path) -> dict[str, float]:
    return measure_kernels(account_for(read_trace(trace.write(folder / "trace.json"))))


def test_tensor_cores_count_among_matrix_kernels_only(tmp_path: Path) -> None:
    found = numbers(made((GEMM, 300), (SGEMM, 100), (ELEMENTWISE, 900), (FLASH, 500)), tmp_path)
    assert found["traced_tensor_cores"] == pytest.approx(0.75)
    assert found["traced_fused_attention"] == pytest.approx(500 / 1800)
    assert "traced_softmax" not in found


def test_a_model_without_matrix_products_says_nothing_of_tensor_cores(tmp_path: Path) -> None:
    found = numbers(made((ELEMENTWISE, 900), (SOFTMAX, 100)), tmp_path)
    assert "traced_tensor_cores" not in found
    assert "traced_pageable" not in found
    assert found["traced_softmax"] == pytest.approx(0.1)


def test_the_softmax_of_a_loss_and_what_inductor_fuses_are_neither_attention_nor_layouts(tmp_path: Path) -> None:
    loss = "void at::native::cunn_SoftMaxForwardReg<float, float, float, at::native::LogSoftMaxForwardEpilogue, long>"
    fused = "triton_per_fused_add_clone_native_layer_norm_backward_transpose_view_7"
    found = numbers(made((loss, 100), (fused, 200), ("batched_transpose_32x32_half", 100), (GEMM, 600)), tmp_path)
    assert "traced_softmax" not in found
    assert found["traced_layout"] == pytest.approx(0.1)


def test_kernels_of_servers_are_what_they_do_and_not_what_their_library_is_called(tmp_path: Path) -> None:
    """Norms and stores of keys beside attention over pages, products of TensorRT-LLM and of Composable Kernel."""
    memory = (
        ("kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at__tensor", 100),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(Params)", 100),
        ("void (anonymous namespace)::act_and_mul_kernel<__nv_bfloat16>(Params)", 100),
        ("aiter::topksoftmax_4x128x8_bf16", 100),
    )
    attention = (
        ("void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16>(Params)", 100),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<128>(Params)", 100),
    )
    products = (
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128u2_s6", 200),
        ("void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<unsigned short, unsigned short, float>>(Params)", 200),
    )
    trace = made(*memory, *attention, *products)
    assert account_for(read_trace(trace.write(tmp_path / "made.json"))).shares == pytest.approx(
        {"gpu.memory_bandwidth": 0.4, "gpu.compute": 0.6}
    )
    found = numbers(trace, tmp_path)
    assert found["traced_fused_attention"] == pytest.approx(0.2)
    assert (found["traced_tensor_cores"], found["traced_matrix_bf16"]) == (1.0, 1.0)
    assert "traced_softmax" not in found


def test_pageable_copies_are_told_from_pinned_ones(tmp_path: Path) -> None:
    trace = made((GEMM, 5000))
    for number, kind in enumerate(
        ("HtoD (Pageable -> Device)", "HtoD (Pinned -> Device)", "DtoH (Device -> Pageable)", "DtoD")
    ):
        call = trace.call("cudaMemcpyAsync", 2000.0 + 100 * number, 2010.0 + 100 * number)
        trace.on_device(f"Memcpy {kind}", 2020.0 + 100 * number, 2030.0 + 100 * number, call, category="gpu_memcpy")
    assert numbers(trace, tmp_path)["traced_pageable"] == pytest.approx(2 / 3)


def test_the_kernels_of_an_optimizer_step_are_counted(tmp_path: Path) -> None:
    trace = made((GEMM, 5000))
    for number, count in enumerate((7, 7, 9)):
        begin = 10_000.0 + 1000 * number
        trace.annotation("Optimizer.step#AdamW.step", begin, begin + 900)
        for index in range(count):
            trace.launch(ELEMENTWISE, begin + 10 + 50 * index, begin + 20 + 50 * index, begin + 30 + 50 * index)
    assert numbers(trace, tmp_path)["traced_optimizer_kernels"] == 7


def test_kernels_of_a_closure_are_not_the_optimizers(tmp_path: Path) -> None:
    """Lightning runs forward and backward pass inside of the optimizer's step."""
    trace = made((GEMM, 5000))
    trace.annotation("Optimizer.step#AdamW.step", 10_000.0, 12_000.0)
    trace.operator("autograd::engine::evaluate_function: AddmmBackward0", 10_500.0, 11_000.0, thread=MAIN + 1)
    for index in range(50):
        launched = 10_010.0 + 20 * index
        trace.launch(ELEMENTWISE, launched, launched + 10, launched + 20)
    for index in range(3):
        launched = 11_100.0 + 100 * index
        trace.launch(ELEMENTWISE, launched, launched + 10, launched + 20)
    assert numbers(trace, tmp_path)["traced_optimizer_kernels"] == 3


def test_the_longest_kernels_stand_in_their_finding(tmp_path: Path) -> None:
    path = made((GEMM, 6000), (FLASH, 2000), (ELEMENTWISE, 1000)).write(tmp_path / "trace.json")
    account = account_for(read_trace(path))
    [first, second] = top_named([time_kernels(account)])["gpu.compute"]
    assert first == (GEMM, pytest.approx(0.75))
    assert second[0] == "pytorch_flash::flash_fwd_kernel"
    finding = next(one for one in diagnose_traces([read_trace(path)]).findings if one.cause == "gpu.compute")
    shown = [str(one.value) for one in finding.evidence if one.name.startswith("kernel that takes")]
    assert shown == [f"{GEMM} (75%)", "pytorch_flash::flash_fwd_kernel (25%)"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ELEMENTWISE, "at::native::vectorized_elementwise_kernel [AddFunctor]"),
        (SOFTMAX, "softmax_warp_forward"),
        ("Memset (Device)", "Memset"),
        ("(odd)", "(odd)"),
        ("k" * 300, "k" * 100),
    ],
)
def test_names_fit_a_line(name: str, short: str) -> None:
    assert shorten(name) == short


@pytest.mark.parametrize(
    ("name", "tensor_cores"),
    [("qwen-0.5b-h100", 1.0), ("resnet50-v100-4-workers", 0.0), ("resnet-ddp-v100-sound", 0.0)],
)
def test_precision_of_real_jobs(name: str, tensor_cores: float) -> None:
    assert measure_kernels(account_for(read_trace(real(name))))["traced_tensor_cores"] == pytest.approx(
        tensor_cores, abs=0.02
    )


def test_forward_work_inside_the_backward_pass_is_done_again(tmp_path: Path) -> None:
    """A checkpoint whose backward node runs the forward pass (2 ms), and then autograd's nodes (3 ms)."""
    trace = made((GEMM, 5000))
    engine = "autograd::engine::evaluate_function: "
    trace.operator(f"{engine}CheckpointFunctionBackward", 2000.0, 3000.0)
    trace.operator("CheckpointFunctionBackward", 2001.0, 2999.0)
    trace.operator("aten::mm", 2010.0, 2100.0)
    trace.launch(GEMM, 2020.0, 6000.0, 8000.0)
    trace.operator(f"{engine}MmBackward0", 2200.0, 2400.0)
    trace.operator("aten::mm", 2210.0, 2300.0)
    trace.launch(GEMM, 2220.0, 8000.0, 11_000.0)
    assert numbers(trace, tmp_path)["traced_recomputed"] == pytest.approx(0.2)


def test_a_job_without_checkpoints_does_nothing_again(tmp_path: Path) -> None:
    trace = made((GEMM, 5000))
    trace.operator("autograd::engine::evaluate_function: MmBackward0", 2200.0, 2400.0)
    trace.launch(GEMM, 2220.0, 8000.0, 11_000.0)
    assert "traced_recomputed" not in numbers(trace, tmp_path)


def test_checkpoints_of_a_real_job_are_seen() -> None:
    found = measure_kernels(account_for(read_trace(real("resnet-checkpointing-mi300x-rank0-of-8"))))
    assert 0.1 < found["traced_recomputed"] < 0.4
