"""Which operator and which source line brought a cause about, in planted timelines."""

from pathlib import Path

import numpy as np
import pytest

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.knowledge.profiler import name_precision
from perfdoctor.traces.call_sites import own_line
from perfdoctor.traces.intervals import NONE, Nesting
from perfdoctor.traces.model import Int64s
from perfdoctor.traces.reader import read_trace
from tests.builders.traces import ELEMENTWISE, GEMM, MAIN, MadeTrace, diagnose_traces
from tests.files import real

AUTOGRAD = MAIN + 1


def diagnose(made: MadeTrace, folder: Path) -> Diagnosis:
    return diagnose_traces([read_trace(made.write(folder / "trace.json"))])


def shown(diagnosis: Diagnosis, cause: str, name: str) -> list[str]:
    finding = next(one for one in diagnosis.findings if one.cause == cause)
    return [str(one.value) for one in finding.evidence if one.name == name]


def lines(diagnosis: Diagnosis, cause: str) -> list[str]:
    return shown(diagnosis, cause, "where most of it happens")


def operators(diagnosis: Diagnosis, cause: str) -> list[str]:
    return shown(diagnosis, cause, "operator that takes most of it")


def two_layers() -> MadeTrace:
    """Two modules, of which the second launches three quarters of the GPU's work, from within PyTorch's own frames."""
    made = MadeTrace()
    made.gpu()
    made.step(1, 0.0, 1000.0)
    made.span("python_function", "train.py(10): main", 0.0, 1000.0)
    for number, taken in ((1, 1000.0), (2, 3000.0)):
        at = 100.0 * number
        made.span("python_function", f"model.py({number}0): layer{number}", at, at + 50)
        made.span("python_function", "torch/nn/modules/linear.py(116): forward", at + 1, at + 49)
        made.span("python_function", "<built-in function linear>", at + 2, at + 48)
        made.operator("aten::linear", at + 3, at + 45)
        made.operator(f"aten::addmm{number}", at + 4, at + 40)
        made.launch(GEMM, at + 10, 200.0 + (number - 1) * 1000, 200.0 + (number - 1) * 1000 + taken)
    return made


def test_work_leads_back_to_the_operator_and_line_that_launched_it(tmp_path: Path) -> None:
    found = diagnose(two_layers(), tmp_path)
    assert lines(found, "gpu.compute") == ["model.py:20 layer2 (75%)", "model.py:10 layer1 (25%)"]
    assert operators(found, "gpu.compute") == ["aten::addmm2 (75%)", "aten::addmm1 (25%)"]
    compute = next(one for one in found.findings if one.cause == "gpu.compute")
    assert "most of it at model.py:20 layer2" in compute.summary


def test_autograds_thread_is_where_the_main_thread_waits_for_it(tmp_path: Path) -> None:
    made = two_layers()
    made.span("python_function", "torch/_tensor.py(500): backward", 400.0, 900.0)
    made.operator("aten::mm", 500.0, 600.0, thread=AUTOGRAD)
    made.launch(GEMM, 510.0, 4200.0, 12_200.0, thread=AUTOGRAD)
    found = diagnose(made, tmp_path)
    assert lines(found, "gpu.compute")[0] == "train.py:10 main (67%)"
    assert operators(found, "gpu.compute")[0] == "aten::mm (67%)"


def test_work_that_nobody_launched_counts_in_the_fractions(tmp_path: Path) -> None:
    made = two_layers()
    made.on_device(GEMM, 200.0, 4200.0, 9999, stream=9)
    found = diagnose(made, tmp_path)
    assert lines(found, "gpu.compute") == ["model.py:20 layer2 (38%)", "model.py:10 layer1 (12%)"]
    assert "above all at model.py:20" in next(one for one in found.findings if one.cause == "gpu.compute").summary


def test_a_wait_is_named_by_its_own_line_and_not_by_what_comes_next(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    for number in range(10):
        at = 10_000.0 * number
        made.step(number, at, at + 10_000)
        made.span("python_function", "train.py(5): forward", at, at + 900)
        made.operator("aten::mm", at + 10, at + 100)
        made.launch(GEMM, at + 20, at + 100, at + 4000)
        made.span("python_function", "train.py(9): log", at + 1000, at + 9900)
        made.operator("aten::item", at + 1100, at + 9800)
        made.call("cudaStreamSynchronize", at + 1200, at + 9700)
    found = diagnose(made, tmp_path)
    assert found.verdict.cause == "cpu.synchronization"
    assert lines(found, "cpu.synchronization") == ["train.py:9 log (100%)"]
    assert operators(found, "cpu.synchronization") == ["aten::item (100%)"]


def test_a_fetch_is_named_by_the_lines_inside_it(tmp_path: Path) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.span("python_function", "train.py(5): main", 0.0, 10_000.0)
    made.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10.0, 8000.0)
    made.span("python_function", "dataset.py(30): __getitem__", 1000.0, 7000.0)
    made.span("python_function", "PIL/Image.py(2000): resize", 1000.0, 2000.0)
    made.operator("aten::mm", 8000.0, 10_000.0)
    found = lines(diagnose(made, tmp_path), "cpu.input_preprocessing")
    # Who asks for the batch is not where it is made.
    assert found == ["dataset.py:30 __getitem__ (63%)", "PIL/Image.py:2000 resize (12%)"]


def test_batches_that_workers_make_have_no_line(tmp_path: Path) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.span("python_function", "train.py(5): main", 0.0, 10_000.0)
    made.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 10.0, 8000.0)
    made.span("python_function", "torch/utils/data/dataloader.py(1120): _try_get_data", 20.0, 7900.0)
    made.operator("aten::mm", 8000.0, 10_000.0)
    found = diagnose(made, tmp_path)
    assert found.verdict.cause == "cpu.input_preprocessing"
    assert lines(found, "cpu.input_preprocessing") == []
    assert not any("train.py" in fix.title for fix in found.findings[0].fixes)


def test_hundreds_of_views_are_named_by_the_operator_that_makes_them(tmp_path: Path) -> None:
    """In each step 3 ms of it without a launch, next to 0.5 ms of another one that takes long by itself."""
    made = MadeTrace()
    made.gpu()
    for number in range(10):
        start = number * 4000.0
        made.step(number, start, start + 4000.0)
        made.operator("aten::unflatten_dense_tensors", start, start + 3000.0)
        for view in range(60):
            made.operator("aten::slice", start + view * 50.0, start + view * 50.0 + 45.0)
        made.operator("aten::sort", start + 3000.0, start + 3500.0)
        made.launch(GEMM, start + 3500.0, start + 3510.0, start + 4000.0)
    found = operators(diagnose(made, tmp_path), "cpu.python_overhead")
    assert [one.split(" ")[0] for one in found] == ["aten::unflatten_dense_tensors", "aten::sort"]


def test_a_job_on_the_cpu_names_operators_by_what_they_take_themselves(tmp_path: Path) -> None:
    made = MadeTrace()
    made.step(1, 0.0, 10_000.0)
    made.operator("aten::linear", 0.0, 6000.0)
    made.operator("aten::addmm", 0.0, 6000.0)
    made.operator("aten::relu", 6000.0, 8000.0)
    for number in range(100):
        made.operator("aten::add", 8000.0 + 20 * number, 8005.0 + 20 * number)
    found = diagnose(made, tmp_path)
    assert operators(found, "cpu.model_compute") == ["aten::addmm (75%)", "aten::relu (25%)"]
    assert operators(found, "cpu.python_overhead")[0] == "aten::add (98%)"
    assert shown(found, "cpu.model_compute", "operators called in one step, those inside others not counted") == [
        "102.0"
    ]


def test_stacks_of_old_profilers_tell_lines_too(tmp_path: Path) -> None:
    made = MadeTrace()
    made.gpu()
    stack = "/home/u/env/lib/python3.7/site-packages/torch/nn/functional.py(9): relu;net.py(7): forward;train.py(3): go"
    made.span("Operator", "aten::relu", 0.0, 50.0, args={"Call stack": stack})
    made.launch(ELEMENTWISE, 10.0, 60.0, 3000.0)
    assert lines(diagnose(made, tmp_path), "gpu.memory_bandwidth") == ["net.py:7 forward (100%)"]


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        ("train.py(12): main", "train.py:12 main"),
        ("/home/me/torch_job/train.py(12): <module>", "/home/me/torch_job/train.py:12 <module>"),
        ("torch/nn/modules/module.py(1501): _call_impl", ""),
        ("contextlib.py(132): __enter__", ""),
        ("/opt/env/lib/python3.11/site-packages/x/y.py(1): f", ""),
        ("<built-in method item of Tensor object at 0x7f>", ""),
        ("<frozen runpy>(198): _run_module_as_main", ""),
        ("nn.Module: Linear_3", ""),
    ],
)
def test_only_the_jobs_own_frames_are_lines(frame: str, line: str) -> None:
    assert own_line(frame) == line


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        ("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", "bf16"),
        ("nvjet_qqtst_192x192_128x4_2x1_v_bz_coopB_TNN", "fp8"),
        ("nvjet_sm100_hsh_128x64_64x9_2x1_v_bz_TNN", "fp16"),
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("volta_s884gemm_fp16_128x128_ldg8_f2f_nn", "fp16"),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "fp32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>(Params)", "tf32"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)", "bf16"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", "tf32"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x160x64", "bf16"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16_SE_1LDSB0", "fp32"),
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128u2_s6_et128x8_m128x8x16_c1x1x1_16dp256b", "bf16"),
        ("bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et128x8", "fp8"),
        (
            "void ck::kernel_moe_gemm<ck::GridwiseMoeGemm<ck::RowMajor, unsigned short, unsigned short, float>>()",
            "bf16",
        ),
        ("void ck::kernel_gemm_xdl_cshuffle_v1<ck::GridwiseGemm<ck::RowMajor, _Float16, _Float16, float>>()", "fp16"),
        ("mystery_gemm_kernel", ""),
    ],
)
def test_names_tell_the_precision(kernel: str, precision: str) -> None:
    assert name_precision(kernel) == precision


def brute_force(start: Int64s, end: Int64s, thread: Int64s, at: int, on: int) -> int:
    around = np.flatnonzero((thread == on) & (start <= at) & (at < end))
    return int(around[np.argmin(end[around] - start[around])]) if len(around) else NONE


def test_the_innermost_range_is_found_whatever_nests_in_what() -> None:
    random = np.random.default_rng(7)
    spans = []
    for thread in (0, 3, 9):
        todo = [(thread * 5, 1000 + thread)]
        while todo:
            first, last = todo.pop()
            spans.append((first, last, thread))
            if last - first > 12:
                cuts = np.sort(random.choice(np.arange(first + 1, last - 1), 4, replace=False))
                todo += [(int(cuts[0]), int(cuts[1])), (int(cuts[2]), int(cuts[3]))]
    start, end, thread = (np.array(column, dtype=np.int64) for column in zip(*spans, strict=True))
    order = np.lexsort((-end, start))
    start, end, thread = start[order], end[order], thread[order].astype(np.int32)
    nesting = Nesting(np.arange(len(start)), start, end, thread)
    asked = [(on, at) for on in (-1, 0, 3, 5, 9) for at in range(-3, 1020)]
    found = nesting.innermost(np.array([on for on, _ in asked]), np.array([at for _, at in asked]))
    assert found.tolist() == [brute_force(start, end, thread, at, on) for on, at in asked]
    assert nesting.own_time().sum() == sum(
        end[thread == on].max() - start[thread == on].min() for on in np.unique(thread)
    )


def test_ranges_without_duration_enclose_nothing() -> None:
    start, end = np.array([0, 5, 5]), np.array([10, 5, 8])
    nesting = Nesting(np.arange(3), start, end, np.zeros(3, dtype=np.int32))
    assert nesting.innermost(np.zeros(3, dtype=np.int64), np.array([5, 8, 10])).tolist() == [2, 0, NONE]


def test_real_jobs_are_named_by_line() -> None:
    owlv2 = diagnose_traces([read_trace(real("owlv2-h100"))])
    assert lines(owlv2, "cpu.input_preprocessing")[0].startswith("scipy/ndimage/_interpolation.py:739 zoom (85%)")
    assert operators(owlv2, "gpu.memory_bandwidth")[0].startswith("aten::_softmax (9")
    assert lines(owlv2, "gpu.memory_bandwidth")[0].startswith("transformers/models/owlv2/modeling_owlv2.py:410 forward")
    listed = diagnose_traces([read_trace(real("resnet50-v100-0-workers"))])
    assert lines(listed, "cpu.input_preprocessing") == ["resnet50_profiler_api.py:42 <module> (100%)"]
