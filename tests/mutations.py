#!/usr/bin/env python3
"""Checks the tests: puts one deliberate fault after another into a copy of the tree and demands that a test fails.

mutations.py [--scratch DIR] [--only SUBSTRING]... [--list] [--jobs N] [--trust]
Prints one line a fault: its name and the test that failed. The one that tests/README.md names is tried first, alone.
Exits with 1 if a fault went unnoticed.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# name, then pairs: file, text that occurs once, what it becomes.
FAULTS = [
    ("a live value counts as dead", ("tracer/stream.cpp", "storages[i]->use_count() > 1;", "storages[i]->use_count() > 2;")),
    ("another thread's write goes unseen", ("tracer/flush.cpp", "if (storage->version() != external.version && !pending.conflict)", "if (false && !pending.conflict)")),
    ("deferred writes leave versions alone", ("tracer/recorder.cpp", "  storage.bump_version();\n}", "}")),
    ("sizes of storages are not in the key", ("tracer/recorder.cpp", "words_.push_back(static_cast<uint64_t>(storage.bytes) << 1 | storage.external);", "words_.push_back(storage.external);"), ("tracer/foresee.cpp", "expected.bytes != static_cast<int64_t>(storage.bytes()) ||", "")),
    ("a storage made here and one found are not told apart", ("tracer/recorder.cpp", "static_cast<uint64_t>(storage.bytes) << 1 | storage.external", "static_cast<uint64_t>(storage.bytes)")),
    ("the thread count is not in the key", ("tracer/recorder.cpp", "if (cursor_ == site_->root()) words_.push_back(static_cast<uint64_t>(num_threads()));", "if (cursor_ == site_->root()) words_.push_back(1);"), ("tracer/foresee.cpp", "return cursor_ != site_->root() || node.key[0] == static_cast<uint64_t>(num_threads());", "return true;")),
    ("strides are not in the key", ("tracer/recorder.cpp", "words_.push_back(static_cast<uint64_t>(geometry.strides[i]));", "words_.push_back(0);"), ("tracer/foresee.cpp", "         same_dims(expected.geometry.strides, geometry.strides);", "         true;")),
    ("which storage an operand is, is not in the key", ("tracer/recorder.cpp", "words_.push_back(operand_word(RecordedOperand::Kind::Tensor, operand.dtype, number(storage, written), ndim,", "number(storage, written);\n  words_.push_back(operand_word(RecordedOperand::Kind::Tensor, operand.dtype, 0, ndim,"), ("tracer/foresee.cpp", "if (expected.number < count) return storages_[expected.number].get() == &storage;", "if (expected.number < count) return true;")),
    ("attributes are not compared", ("tracer/recorder.cpp", "for (int i = 0; i < call.attrs.count; ++i) words_.push_back(static_cast<uint64_t>(call.attrs[i]));", ""), ("tracer/foresee.cpp", "      !(known.attrs == attrs))", "      false)")),
    ("a new storage may be one that the call has already", ("tracer/foresee.cpp", "      if (fresh_[i] == &storage) return false;", "      ;")),
    ("a foreseen dtype is not compared", ("tracer/foresee.cpp", "known.outputs[i].dtype != given)", "false)")),
    ("foreign memory is copied once only", ("tracer/recorder.cpp", "if (!snapshot || std::memcmp(snapshot->raw_data(), storage.raw_data(), storage.bytes()) != 0) {", "if (!snapshot) {")),
    ("a host write does not wait for pending reads", ("tracer/recorder.cpp", "if (storage.pending.load(std::memory_order_relaxed) == this || externals_.contains(&storage))", "if (storage.pending.load(std::memory_order_relaxed) == this)")),
    ("any executable serves any live set", ("tracer/flush.cpp", "if (contains(executable->live(), live)) return executable;", "return executable;")),
    ("an exception drops what is pending", ("tracer/recorder.cpp", "void Recorder::abandon() noexcept {\n  try {\n    flush_pending(FlushReason::EndOfBody, {}, false);", "void Recorder::abandon() noexcept {\n  try {\n    ops_.clear();")),
    ("what a failed flush left undone is not marked", ("tracer/stream.cpp", "if (live[i] && (incomplete[i] || !storages[i]->has_bytes())) storages[i]->mark_failed(error);", "(void)error;")),
    ("the fallback frees a value too early", ("tracer/stream.cpp", "!live[number] && last_use[number] == i) storages[number] = nullptr;", "!live[number] && last_use[number] <= i + 1) storages[number] = nullptr;")),
    ("the fallback runs a window at offset 0", ("tracer/stream.cpp", "to.offset = value->offset;", "to.offset = 0;")),
    ("scalars are frozen at the first compiled call", ("jit/cpu_plan.cpp", "return s.slot < 0 ? s.scalar : values[s.slot].scalar;", "static std::map<const void*, Scalar> frozen;\n    if (s.slot < 0) return s.scalar;\n    return frozen.try_emplace(&s, values[s.slot].scalar).first->second;")),
    ("offsets are taken as 0", ("jit/cpu_plan.cpp", "return a.slot < 0 ? data : data + values[a.slot].offset * a.item;", "return data;")),
    ("equal nodes merge whatever their scalars and seeds", ("jit/passes/cse.cpp", "    add(operand.slot);\n", ""), ("jit/passes/cse.cpp", "!(info(node.op).flags & kRandom) && ", "")),
    ("equal nodes merge across a write", ("jit/passes/cse.cpp", "key.add(input, input.is_tensor() ? version[input.buffer] : 0);", "key.add(input, 0);")),
    ("a value that outlives the call merges with another", ("jit/passes/cse.cpp", "internal = internal && graph.buffers[output.buffer].kind == GraphBuffer::Kind::Internal;", "internal = internal && graph.buffers[output.buffer].kind != GraphBuffer::Kind::External;")),
    ("writes to externals count as dead", ("jit/passes/dce.cpp", "needed[b] = graph.buffers[b].kind != GraphBuffer::Kind::Internal;", "needed[b] = graph.buffers[b].kind == GraphBuffer::Kind::Output;")),
    ("a copy is folded although its source is written in between", ("jit/passes/canonicalise.cpp", "if (next != writers.end() && *next <= r) continue;", "")),
    ("a write of a part counts as one of all", ("jit/passes/rename.cpp", "return windows == 1 && covers_buffer(graph, output);", "return windows == 1;")),
    ("groups form although a path leaves and comes back", ("jit/passes/fuse.cpp", "if (cluster != from && cluster != to && ancestors_.test(cluster, from)) return true;", "")),
    ("a reader does not hold up the writer after it", ("jit/graph_facts.cpp", "      before.insert(before.end(), state.readers.begin(), state.readers.end());\n", "")),
    ("late checks may run after visible writes", ("jit/graph_facts.cpp", "if (checked_operand(node) >= 0 && !checks_early(graph, facts, node)) write(effects);", "")),
    ("a value is inlined past a write to what it loads", ("jit/passes/inline_recomputed.cpp", "if (write != f.writers.end() && *write < to) return false;", "")),
    ("a value is inlined from memory that its group overwrites", ("jit/passes/inline_recomputed.cpp", "(!facts.value && !facts.writers.empty()) ||", "")),
    ("a value is recomputed past a write to what it loads", ("jit/passes/recompute.cpp", "if (write != f.writers.end() && *write < at) return false;", "")),
    ("a kernel in place does not compare addresses", ("jit/cpu_plan.cpp", "if (frame.at(pair.a) != frame.at(pair.b)) return false;", "(void)pair;")),
    ("an op over overlapping windows runs without a copy", ("jit/cpu_plan.cpp", "if (call.aliases) return execute(op);", "")),
    ("indices are not checked", ("jit/cpu_plan.cpp", "    try {\n      check_data(", "    try {\n      if (false) check_data(")),
    ("an output that the failed step was to write is handed over", ("jit/cpu_plan.cpp", "last_write_[base - first_output_base_] >= static_cast<int>(step))", "last_write_[base - first_output_base_] > static_cast<int>(step))")),
    ("buffers of unequal sizes share in place", ("jit/memory_plan.cpp", "if (graph.buffers[in.buffer].bytes != graph.buffers[b].bytes || (output[from] >= 0 && output[b] >= 0))", "if (align(graph.buffers[in.buffer].bytes) != align(graph.buffers[b].bytes) || (output[from] >= 0 && output[b] >= 0))")),
    ("a buffer dies one step before its last reader", ("jit/memory_plan.cpp", "range[b].last = std::max(range[b].last, facts[b].readers.back());", "range[b].last = std::max(range[b].last, facts[b].readers.back() - 1);")),
    ("a step overwrites an input of another geometry", ("jit/cpu_program.cpp", "if (input.dtype != output.dtype || !(input.geometry == output.geometry)) return false;", "if (input.dtype != output.dtype) return false;")),
    ("a group overwrites elements that it reads elsewhere", ("codegen/lower.cpp", 'return refuse("a write over elements that the group reads at other indices");', "break;")),
    ("f16 and bf16 are not rounded inside a group", ("codegen/emit.cpp", '_to_float(h", value, ");"});\n  } else {', '_to_float(h", value, ");"});\n    text_.erase(text_.rfind("const float v"));\n    line({"const float v", value, " = ", expression, ";"});\n  } else {')),
    ("a stride is one too small", ("codegen/lower_loops.cpp", "kernel_.dims.push_back(step);", "kernel_.dims.push_back(step > 1 ? step - 1 : step);")),
    ("dimensions merge although a window has a gap", ("codegen/lower_loops.cpp", "return s[outer] == s[inner] * inner_size;", "return s[outer] >= s[inner] * inner_size;")),
    ("operands are swapped", ("codegen/emit.cpp", "const int arg = value.args[i];", "const int arg = value.args[row.arity == 2 ? value.args.size() - 1 - i : i];")),
    ("every reduction starts from 0", ("codegen/emit.cpp", 'return join_text({"identity_", name(value.op), "<", register_type(value.compute), ">()"});', 'return join_text({register_type(value.compute), "(0)"});')),
    ("the last elements of a row are left out", ("codegen/emit_reductions.cpp", 'line({"const int left = static_cast<int>(stop - j);"});', 'line({"const int left = static_cast<int>(stop - j) / 2;"});')),
    ("a stored value is the one before its overwrite", ("codegen/lower.cpp", "    earlier.value = value;\n    return true;", "    return true;")),
    ("a function with too many paths forgets those it has", ("tracer/recorder.cpp", "if (site.gave_up() && !site.expects_known_path()) return;", "if (site.gave_up()) return;")),
    ("a call that leaves the known paths drops what is pending", ("tracer/recorder.cpp", "    flush_pending(FlushReason::Limit, {}, false);", "    ops_.clear();")),
    ("an output made before the op may have other strides than foreseen", ("tracer/foresee.cpp", "made ? !same_window(known.outputs[i], outputs[i]) ||", "made ? false ||")),
    ("the most recently used executable is evicted", ("tracer/eviction.cpp", "return a->last_used.load(std::memory_order_relaxed) < b->last_used.load(std::memory_order_relaxed);", "return a->last_used.load(std::memory_order_relaxed) > b->last_used.load(std::memory_order_relaxed);")),
    ("evicted paths are compiled again at once, each time", ("tracer/eviction.cpp", "if (end.evictions < 2) return true;", "return true;")),
    ("a queued compile runs although its function is gone", ("tracer/flush.cpp", "if (kept || !shared) (void)compile_end(end, chosen, site);", "(void)compile_end(end, chosen, site);"), ("tracer/site.cpp", "  if (options_.background) cancel_background(&options_);\n", "")),
    ("a function that goes waits for its compile", ("tracer/flush.cpp", "const std::shared_ptr<Site> kept = weak.lock();", "const bool kept = !weak.expired();")),
    ("a number that changes from run to run is frozen", ("jit/freeze.cpp", "if (!same_bits(before, now))", "if (false && !same_bits(before, now))")),
    ("what a frozen body leaves behind goes unseen", ("jit/freeze.cpp", "    if (!returned)\n", "    if (false && !returned)\n")),
    ("a frozen call takes inputs to begin where the example did", ("jit/frozen_plan.cpp", "for (const Shift& shift : shifts_) own[shift.slot].offset += inputs[shift.input]->storage_offset();", "for (const Shift& shift : shifts_) own[shift.slot].offset += inputs_[shift.input].offset;")),
    ("a frozen call draws the same random numbers each time", ("jit/frozen_plan.cpp", "default_generator().reserve(static_cast<int64_t>(drawn_) * 4);", "default_generator().state();")),
    ("writes of frozen calls leave versions alone", ("jit/frozen_plan.cpp", "    storage.bump_version();\n", "")),
    ("a view keeps its history when its base is written", ("eager/view_history.cpp", "    set_history(view, node);", "    (void)node;")),
    ("a gradient goes past the write of a window", ("eager/view_history.cpp", "if (inputs.needs(0)) inputs.set(0, put_window(g, before, at_, g));", "if (inputs.needs(0)) inputs.set(0, g);")),
    ("kernels of other compilers and flags are taken from the cache", ("codegen/load.cpp", "Hash128::of(context + kernel->host_source)", "Hash128::of(kernel->host_source)")),
    ("a tile's sum that underflowed keeps its sign", ("jit/tile_run.cpp", "if (terms.last < p.terms && cpu::has_negative_zero(", "if (false && cpu::has_negative_zero(")),
    ("zeros of a tile meet infinities unseen in a product by rows", ("jit/tile_run.cpp", "        is_finite(magnitude_outside(p.b.window, b.of_columns ? Range{} : support_[p.a.local])))", "        true)")),
    ("zeros of a tile meet infinities unseen in a product by terms", ("jit/tile_run.cpp", "if (!is_finite(magnitude(p.b.window, row_ / kTileRows)) ||", "if (")),
    ("a gradient counts as finite", ("jit/tile_run.cpp", "if (most < 1e38) columns = visible_;", "columns = visible_;")),
    ("a row of NaNs is zero where the mask hides it", ("jit/tile_run.cpp", "if (row[0] == row[0])", "if (true)")),
    ("a softmax is cut short whatever the fill", ("jit/tile_run.cpp", "scalars[kernel.fill].f32 == -std::numeric_limits<float>::infinity();", "true;")),
    ("what a mask hides counts as zero", ("jit/tile_run.cpp", "if (visible_.last <= width && cpu::is_zero(local(l), rows_, visible_.first, width) &&\n        cpu::is_zero(local(l) + visible_.last, rows_, width - visible_.last, width))", "if (visible_.last <= width)")),
    ("weights are computed again from what was overwritten", ("jit/passes/tile.cpp", "if (input.is_tensor() && stored[input.buffer] && !is_stable(input.buffer)) return false;", "")),
    ("a tile runs after what reads its results", ("jit/passes/tile.cpp", "if (!facts.value || std::any_of(facts.readers.begin(), facts.readers.end(), early)) return false;", "")),
    ("sums of any order become tiles", ("jit/tile_plan.cpp", "if (!cpu::sums_in_order({node.op, inputs, outputs, node.attrs})) return false;", "")),
    ("narrow pieces add up in another order", ("eager/cpu/tile_product.cpp", "kFewestColumns = 17", "kFewestColumns = 1")),
]

# Of each layer: test programs and filters, in the order they run.
RANDOM = "RandomPrograms.*"
STAGES = {
    "tracer": [("tracer_test", "*"), ("jit_test", "-" + RANDOM), ("jit_test", RANDOM)],
    "jit": [("jit_test", "-" + RANDOM), ("jit_test", RANDOM)],
    "eager": [("eager_test", "*"), ("jit_test", "-" + RANDOM), ("jit_test", RANDOM)],
    "codegen": [("codegen_test", "*"), ("jit_test", RANDOM)],
}


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)


def copy_tree(scratch):
    names = run(["git", "-C", ROOT, "ls-files"]).stdout.split("\n")
    for name in filter(None, names):
        target = os.path.join(scratch, name)
        text = open(os.path.join(ROOT, name), "rb").read()
        if os.path.exists(target) and open(target, "rb").read() == text:
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(ROOT, name), target)


def build(scratch, jobs, programs):
    result = run(["cmake", "--build", os.path.join(scratch, "build"), "-j", str(jobs), "--target", *programs])
    return result.stdout if result.returncode else ""


def first_failure(scratch, program, chosen):
    folder = os.path.join(scratch, "build")
    environment = dict(os.environ, ETCH_VERIFY="1", ETCH_POISON="1", OMP_WAIT_POLICY="passive",
                       ETCH_CACHE_DIR=os.path.join(folder, "kernel_cache"))
    command = [os.path.join(folder, "tests", program), "--gtest_fail_fast", "--gtest_filter=" + chosen]
    try:
        result = run(command, env=environment, cwd=os.path.join(folder, "tests"), timeout=400)
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode(errors="replace")
        started = re.findall(r"\[ RUN      \] (\S+)", text)
        return (started[-1] if started else program) + " (does not end)"
    if result.returncode == 0:
        return None
    failed = re.findall(r"\[  FAILED  \] (\S+\.\S+?),? ", result.stdout + " ")
    if failed:
        return failed[0]
    started = re.findall(r"\[ RUN      \] (\S+)", result.stdout)
    return (started[-1] if started else program) + " (crashes)"


# Fault to test, from the table in tests/README.md.
def named_tests():
    rows = (line.split("|") for line in open(os.path.join(ROOT, "tests/README.md")) if line.startswith("| "))
    return {row[1].strip(): row[3].strip().strip("`") for row in rows if len(row) == 5}


# Test to program.
def owners(scratch, programs):
    owner = {}
    for program in programs:
        suite = ""
        listing = run([os.path.join(scratch, "build/tests", program), "--gtest_list_tests"]).stdout
        for line in (line.split("#")[0].rstrip() for line in listing.split("\n")):
            if line.startswith("  "):
                owner[suite + line.strip()] = program
            else:
                suite = line
    return owner


# The test that noticed, or an error in capitals.
def notice(scratch, jobs, stages):
    for program, tests in stages:
        if error := build(scratch, jobs, [program]):
            return "DOES NOT COMPILE: " + "".join(re.findall(r".*error.*\n", error)[:1]).strip()
        if failed := first_failure(scratch, program, tests):
            return failed
    return "UNNOTICED"


def apply(scratch, patches):
    for file, old, new in patches:
        path = os.path.join(scratch, file)
        text = open(path).read()
        if text.count(old) != 1:
            return f"occurs {text.count(old)} times in {file}: {old}"
        open(path, "w").write(text.replace(old, new))
    return ""


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--scratch", default=os.path.join(os.path.dirname(ROOT), "etch_mutations"))
    options.add_argument("--only", action="append", default=[])
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--list", action="store_true")
    options.add_argument("--trust", action="store_true", help="do not run the tests without any fault first")
    options = options.parse_args()
    chosen = [f for f in FAULTS if not options.only or any(word in f[0] for word in options.only)]
    if options.list:
        print("\n".join(name for name, *_ in chosen))
        return 0
    scratch = os.path.abspath(options.scratch)
    os.makedirs(scratch, exist_ok=True)
    copy_tree(scratch)
    programs = ["tracer_test", "codegen_test", "eager_test", "jit_test"]
    if not os.path.exists(os.path.join(scratch, "build/build.ninja")):
        run(["cmake", "-S", scratch, "-B", os.path.join(scratch, "build"), "-G", "Ninja",
             "-DETCH_BUILD_BENCHES=OFF", "-DETCH_BUILD_EXAMPLES=OFF"])
    if error := build(scratch, options.jobs, programs):
        print(error)
        return 2
    for program, tests in [] if options.trust else sorted({stage for stages in STAGES.values() for stage in stages}):
        if failed := first_failure(scratch, program, tests):
            print(f"without any fault {failed} fails")
            return 2
    named, owner = named_tests(), owners(scratch, programs)
    unnoticed = 0
    for name, *patches in chosen:
        start = time.time()
        copy_tree(scratch)
        test = named.get(name)
        first = [(owner[test], test)] if test in owner else []
        if error := apply(scratch, patches):
            caught = "DOES NOT APPLY: " + error
        else:
            caught = notice(scratch, options.jobs, first + STAGES[patches[0][0].split("/")[0]])
        unnoticed += caught.startswith(("DOES NOT", "UNNOTICED"))
        print(f"{name} | {caught} | {time.time() - start:.0f} s", flush=True)
    copy_tree(scratch)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
