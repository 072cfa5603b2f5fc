"""The mutants of `python -m benchmarks.mutants`: one edit each that breaks a kernel, the compiler or the runtime.

An edit is a stretch of the source and what stands there instead. `tests` are those of the default run that must notice,
as few as do; " -k " behind a file chooses some of its tests. Whoever changes the source makes the mutant anew
(tests/benchmarks/test_mutants.py says which), so that it breaks the same thing.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A defect, put in on purpose.

    Attributes:
        name: one word or a few with hyphens. defect: what it is, in words. file: from the root of the checkout.
        old: what stands there, exactly once. new: instead. tests: pytest's arguments, from the root of the checkout.
    """

    name: str
    defect: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


KERNELS = "compiler/backend/kernels"
CATALOGUE = "tests/catalogue/test_catalogue.py"
EMIT = "tests/backend/test_emit_llvm.py"
MEMORY = "tests/passes/dataflow/test_memory_planning.py"
SCHEDULED = "tests/passes/dataflow/test_scheduled_memory.py"
LINK = "tests/backend/test_link.py"
KNOWN = "tests/ir/test_ops_base.py -k known_contents"
FLOW = "tests/integration/test_control_flow.py"
FORGED = "tests/runtime/test_forged_plans.py"

MUTANTS: tuple[Mutant, ...] = (
    # -- kernels: which bytes they write ------------------------------------------------------------------------------
    Mutant("tail-without-mask", "the last vector of a row is stored whole, lanes beyond the row too",
           f"{KERNELS}/nest.py", "k.store(ptr, offset, k.splat(value, lane.lanes), lane.mask)",
           "k.store(ptr, offset, k.splat(value, lane.lanes))", (f"{CATALOGUE} -k Add",)),
    Mutant("one-element-for-all", "every core computes a nest of one element, not the one whose share it is",
           f"{KERNELS}/nest.py", "k.if_(begin < end, lambda: vector(begin, 1, None))",
           "vector(k.index(0), 1, None)", ("tests/backend/kernels/test_shares.py",)),
    Mutant("share-begins-early", "a core's share of a row begins one element early",
           f"{KERNELS}/nest.py", 'begin = k["begin"] * CHUNK', 'begin = k.max(k["begin"] * CHUNK - 1, 0)',
           ("tests/backend/kernels/test_shares.py",)),
    Mutant("first-item-left-out", "loops over rows leave out a core's first row",
           f"{KERNELS}/nest.py", 'k.for_(k["begin"], k["end"], 1, [], item)',
           'k.for_(k["begin"] + 1, k["end"], 1, [], item)', (f"{CATALOGUE} -k Add",)),
    Mutant("pads-swapped", "Pad takes the width behind an axis for that before it",
           f"{KERNELS}/movement/pad.py", "before, after = widths[a]", "after, before = widths[a]",
           (f"{CATALOGUE} -k Pad",)),
    Mutant("truncation-into-store", "LLVM 22.1 may store one narrow lane in the width before its truncation (AVX-512)",
           "compiler/backend/llvm_memory.py", "if value.lanes > 1:\n        raw = _fenced",
           "if value.lanes > 1024:\n        raw = _fenced", ("tests/integration/test_narrow_rows.py",)),
    Mutant("broadcast-stride", "an operand's axis of size 1 is walked along with the result's",
           f"{KERNELS}/nest.py", "(operand.dims[a - lead] == 1 and result.dims[a] != 1)", "operand.dims[a - lead] == 0",
           (f"{CATALOGUE} -k Add",)),
    Mutant("rows-of-a-window", "rows of a result that lies among another's are written as if they lay close together",
           "compiler/backend/fusion.py", "self.pitch = t.pitch", "self.pitch = self.columns",
           ("tests/integration/test_windows.py -k x86-64-v3",)),
    Mutant("tails-contracted", "a product and a sum are rounded once where floors and casts see the last bit",
           "compiler/backend/fusion.py", "with k.rounding():", "if True:",
           ("tests/integration/test_extremes.py -k behind",)),
    Mutant("quotients-multiplied", "a quotient becomes a product though somebody rounds it to a whole number",
           "compiler/passes/block/algebraic_simplification.py", "!= 0.5).any() and may_jump(node)",
           "!= 0.5).any() and False", ("tests/integration/test_exact_steps.py",)),
    Mutant("scores-times-log2e", "scores of attention overflow before their greatest one is taken away",
           f"{KERNELS}/attention/attention.py", "value = value + self.mask_at(",
           "value = value * 1.5 + 1.5 * self.mask_at(",
           ("tests/backend/kernels/test_attention.py",)),
    Mutant("root-unrounded", "what is fused behind a 16-bit result sees more digits than that result has",
           "compiler/backend/fusion.py", "self.result.tensor.dtype) if self.tail else value}",
           "self.result.tensor.dtype) if False else value}", ("tests/backend/kernels/test_fused_tails.py",)),
    Mutant("resized-rows", "rows of a resized batch are called independent",
           "compiler/ir/ops/resize.py", "if any(resized.axis == 0 for", "if any(False for",
           ("tests/catalogue/test_rows.py -k Resize",)),
    Mutant("sizes-unbounded", "integers computed of open sizes are known where their type wraps",
           "compiler/ir/ops/context.py", "if clamped != dim:", "if clamped is None:",
           ("tests/ir/test_ops_base.py -k symbols_are_limited",)),
    # -- kernels: what they compute -----------------------------------------------------------------------------------
    Mutant("bf16-ties-away", "f32 is rounded to bf16 half away from zero, not half to even",
           "compiler/backend/narrow_float.py", "(bits + 0x7FFF + ((bits >> 16) & 1)) >> 16", "(bits + 0x8000) >> 16",
           (f"{EMIT} -k half_rounds",)),
    Mutant("no-saturation", "float to integer wraps below the least number",
           "compiler/backend/llvm_arith.py", '(("ogt", top), ("olt", float(least)))', '(("ogt", top),)',
           (f"{CATALOGUE} -k QuantizeLinear", f"{EMIT} -k saturates")),
    Mutant("nan-lost-in-max", "max(NaN, x) is x",
           "compiler/backend/llvm_arith.py",
           'return e.assign(f"select {i1} {nan}, {t} {e.ref(a)}, {t} {result}")', "return result",
           (f"{EMIT} -k float_arithmetic",)),
    Mutant("division-without-sign", "integers are divided as if they had no sign",
           "compiler/backend/llvm_arith.py", '"div": "sdiv"', '"div": "udiv"', (f"{EMIT} -k division",)),
    Mutant("folded-division", "the division of known sizes rounds down, not towards zero",
           "compiler/ir/ops/elementwise.py", "return quotient if (a < 0) == (b < 0) else -quotient", "return a // b",
           (KNOWN,)),
    Mutant("index-one-beyond", "Gather takes the index behind the last",
           f"{KERNELS}/movement/lookup.py", "(i >= 0) & (i < k.index(c.size))", "(i >= 0) & (i <= k.index(c.size))",
           (f"{CATALOGUE} -k Gather", "tests/integration/test_bad_input.py -k index_out_of_range")),
    Mutant("negative-index", "negative indices of Gather count from the last but one",
           f"{KERNELS}/movement/lookup.py", "k.select(i < 0, i + k.index(c.size), i)",
           "k.select(i < 0, i + k.index(c.size) - 1, i)", (f"{CATALOGUE} -k Gather",)),
    Mutant("winograd-coefficient", "the products of Winograd's transforms have wrong signs",
           f"{KERNELS}/conv/winograd/axes.py", "a - root * b for a, b", "a + root * b for a, b",
           ("tests/backend/kernels/test_winograd.py -k direct_sum and kernel0-1",)),
    Mutant("softmax-overflows", "softmax does not subtract the greatest element",
           f"{KERNELS}/reduction/softmax.py", 'k.math("exp", element(lane) - greatest[v])',
           'k.math("exp", element(lane))',
           (f"{CATALOGUE} -k Softmax and not LogSoftmax",)),
    Mutant("tail-operands-swapped", "operands of an operator in a fused tail are taken in the opposite order",
           "compiler/backend/fusion.py", "*(get(v) for v in node.inputs)", "*(get(v) for v in reversed(node.inputs))",
           (f"{CATALOGUE} -k Sub",)),
    Mutant("tail-key-without-order", "tails that differ in the order of operands share one function",
           f"{KERNELS}/tail.py", "rows.append((_op_key(node), tuple(ref(v) for v in node.inputs)))",
           "rows.append((_op_key(node), frozenset(ref(v) for v in node.inputs)))",
           ("tests/backend/kernels/test_fused_tails.py",)),
    Mutant("strassen-by-default", "products that mix rows are offered without being asked for",
           f"{KERNELS}/matmul/strassen/lower.py", " and ctx.fp.strassen", "",
           ("tests/backend/kernels/test_strassen.py -k is_chosen_for",)),
    Mutant("bf16-cut-off", "operands of products are cut off to bf16, not rounded",
           "compiler/backend/microkernels/bf16.py", "bits + ((bits >> 16) & 1) + 0x7FFF", "bits + 0",
           ("tests/backend/kernels/test_bf16_products.py -k nearest",)),
    Mutant("bf16-last-of-odd", "the last one of an odd number of a constant matrix's rows is left out of its pair",
           "compiler/backend/microkernels/bf16.py", "columns = np.concatenate([columns, none], axis=-2)",
           "columns = np.concatenate([columns[..., :-1, :], none, none], axis=-2)",
           ("tests/backend/kernels/test_bf16_products.py -k packed_in_pairs",)),
    Mutant("bf16-whole-numbers", "products of whole numbers, which are exact, are rounded where others are",
           f"{KERNELS}/matmul/direct.py", "not is_packed(m) or isinstance(fusion.root.op, IntegralMatMul)",
           "not is_packed(m)", ("tests/backend/kernels/test_bf16_products.py -k left_alone",)),
    Mutant("bf16-first-pair-first", "the interpreter adds the first product of a pair of bf16 first",
           "compiler/kernel_ir/interpreted_lanes.py", "((a & 0xFFFF0000, b & 0xFFFF0000), (a << 16, b << 16))",
           "((a << 16, b << 16), (a & 0xFFFF0000, b & 0xFFFF0000))",
           ("tests/kernel_ir/test_dot_bf16.py -k second_product_first",)),
    Mutant("values-leave-their-region", "the verifier lets a loop's values be used behind the loop",
           "compiler/kernel_ir/verifier.py", "outer, self.seen = self.seen, set(self.seen)",
           "outer, self.seen = self.seen, self.seen", ("tests/kernel_ir/test_verifier.py",)),
    Mutant("any-result", "the verifier takes results of any type",
           "compiler/kernel_ir/opcodes.py", "elif self.result is not None and o.results[0].type != self.result(o):",
           "elif self.result is not None and o.results[0].type is None:", ("tests/kernel_ir/test_verifier.py",)),
    Mutant("parsed-without-aliases", "a parsed function promises that its operands do not overlap",
           "compiler/kernel_ir/parser.py", "self.func.noalias = False", "self.func.noalias = True",
           ("tests/kernel_ir/test_parser.py -k besides",)),
    Mutant("bf16-unasked", "native code rounds operands of products to bf16 without being asked to",
           "compiler/lowered.py", "DType.from_name(options.matmul_input)", 'DType.from_name("bf16")',
           ("tests/integration/test_rounded_operands.py -k unasked",)),
    Mutant("outputs-shared", "an output that is an input has no bytes of its own",
           "compiler/passes/dataflow/separate_outputs.py", "if root.producer is None or root in taken:",
           "if root in taken:", ("tests/passes/dataflow/test_outputs.py -k bytes_of_its_own",)),
    Mutant("branch-beyond-reach", "AArch64's jumps are taken to reach an instruction further than they do",
           "runtime/relocations.py", "Kind(_relative, -(1 << bits), 1 << bits, 4,",
           "Kind(_relative, -(1 << bits), (1 << bits) + 4, 4,", ("tests/runtime/test_relocations.py -k reach",)),
    # -- several cores ------------------------------------------------------------------------------------------------
    Mutant("no-barrier", "cores do not wait for each other between kernels",
           "compiler/backend/link.py", "        if i + 1 < len(calls):\n            barrier(k)",
           "        if i + 1 < len(calls) and i % 2:\n            barrier(k)", (f"{LINK} -k begins",)),
    Mutant("barrier-by-x86s-order", "the barrier opens without saying that what was written before it is to be seen",
           "compiler/kernel_ir/synchronisation.py", 'atomic_store(k, sync, generation, mine + 1, "release")',
           'atomic_store(k, sync, generation, mine + 1, "relaxed")',
           ("tests/backend/test_aarch64.py -k order_of_memory", "tests/kernel_ir/test_synchronisation.py")),
    Mutant("progress-by-x86s-order", "a pipeline's stage counts a micro-batch as done, but not what it wrote",
           "compiler/kernel_ir/synchronisation.py", 'atomic_store(k, k["progress"], 0, k["count"], "release")',
           'atomic_store(k, k["progress"], 0, k["count"], "relaxed")',
           ("tests/backend/test_link_interpreted.py -k pipeline", "tests/kernel_ir/test_synchronisation.py -k count")),
    Mutant("order-unseen", "the interpreter takes what another core has just written for ordered",
           "compiler/kernel_ir/interpreted_cores.py", "time > clock[other] and", "time > clock[other] + 1 and",
           ("tests/kernel_ir/test_interpreted_cores.py",)),
    Mutant("no-meeting", "cores of a recurrent layer do not wait for each other's part of the state",
           f"{KERNELS}/recurrent/steps.py", 'k["end"] - k["begin"], self.p.work)', 'k["end"] - k["begin"], 0)',
           ("tests/backend/kernels/test_recurrent.py", "tests/integration/test_recurrent_cores.py")),
    Mutant("one-state-buffer", "a recurrent step writes its state over the one that other cores still read",
           f"{KERNELS}/recurrent/steps.py", "(step & 1) * self.p.state_floats", "(step & 0) * self.p.state_floats",
           ("tests/backend/kernels/test_recurrent.py",)),
    Mutant("shared-scratch", "all cores of an instance use the first one's scratch memory",
           "compiler/backend/link_calls.py", "k.gep(common, core * stride)", "k.gep(common, core * 0)",
           (f"{LINK} -k scratch",)),
    Mutant("branches-do-not-meet", "cores of a layered program do not wait at the end of a layer",
           "compiler/backend/link_schedule.py", "if i and stage.n_cores > 1:", "if i and stage.n_cores > 64:",
           (f"{LINK} -k layer",)),
    Mutant("turns-of-one", "neighbouring stages of a pipeline share one buffer, not two in turns",
           "compiler/passes/dataflow/memory_planning.py", "max(1, 2 * distance)", "max(1, distance)",
           (f"{SCHEDULED} -k crosses",)),
    # -- memory -------------------------------------------------------------------------------------------------------
    Mutant("in-place-elsewhere", "a result takes over an operand whose elements lie in another order",
           "compiler/passes/dataflow/memory_planning.py", " and physical_axes(a) == physical_axes(b))", ")",
           (f"{MEMORY} -k overwritten or element_wise",)),
    Mutant("in-place-still-read", "a result takes over an operand that another node still reads",
           "compiler/passes/dataflow/memory_planning.py", "host is not None and host.ends == [spot] and",
           "host is not None and", (f"{MEMORY} -k overwritten or overlap",)),
    Mutant("arena-one-line-short", "buffers get the whole lines in them alone, not the last, broken one",
           "compiler/passes/dataflow/memory_planning.py", "max(ALIGN, ceil_div(count, ALIGN) * ALIGN)",
           "max(ALIGN, count // ALIGN * ALIGN)", (f"{MEMORY} -k last_line",)),
    Mutant("life-ends-early", "a buffer is given away at the step that reads it last",
           "compiler/passes/dataflow/placement.py", "(s.last + 1, 0, i)", "(s.last, 0, i)", (f"{MEMORY} -k spans",)),
    Mutant("apart-too-early", "two buffers share bytes where one's last step is the other's first",
           "compiler/passes/dataflow/placement.py", "last[:, None] < np.where", "last[:, None] <= np.where",
           (f"{MEMORY} -k spans",)),
    # -- compiler -----------------------------------------------------------------------------------------------------
    Mutant("folded-overflow", "a known number that an integer type cannot hold is kept as it is",
           "compiler/ir/graph.py", "t.dtype.holds(item) for", "t.dtype.bits for",
           ("tests/frontend/test_reference_mistakes.py -k wrap", KNOWN)),
    Mutant("constants-meet", "(x + c) + d becomes x + (c − d)",
           "compiler/passes/block/algebraic_simplification.py", "c1.data + c2.data if", "c1.data - c2.data if",
           ("tests/passes/block/test_algebraic_simplification.py",)),
    Mutant("errors-pass", "exceptions that are not parax's own leave its public functions",
           "parax/errors.py", 'raise as_parax_error(error, f"parax {function.__name__}") from error', "raise",
           ("tests/test_errors.py",)),
    # -- runtime ------------------------------------------------------------------------------------------------------
    Mutant("symbols-in-another-order", "native code gets the symbols' values in the opposite order",
           "runtime/bindings.py", "for symbol in self.manifest.symbols))",
           "for symbol in reversed(self.manifest.symbols)))", ("tests/runtime/test_bindings.py",)),
    Mutant("symbol-one-beyond", "a dimension may be one larger than its bound",
           "runtime/bindings.py", "value > most:", "value > most + 1:",
           ("tests/runtime/test_bindings.py",)),
    Mutant("pieces-overlap", "pieces of a request begin with the last row of the one before",
           "runtime/cut.py", "[(end - size, size) for end, size in",
           "[(max(end - size - 1, 0), size + 1) for end, size in",
           ("tests/runtime/test_cut.py",)),
    Mutant("other-branch", "If runs the branch that the condition does not choose",
           "runtime/control.py", '"then_branch" if _truth(operands[0]) else "else_branch"',
           '"else_branch" if _truth(operands[0]) else "then_branch"', (f"{FLOW} -k test_if",)),
    Mutant("one-trip-more", "Loop runs once more than it is told",
           "runtime/control.py", "(trips is None or i < trips)", "(trips is None or i <= trips)", (f"{FLOW} -k loop",)),
    Mutant("interface-unchecked", "code runs with any manifest",
           "runtime/interface.py", "if found == expected:", "if found:", (f"{FORGED} -k another",)),
)  # fmt: skip
