// What a traced function did and why, as text and as JSON.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "jit/compile.h"
#include "runtime/allocator.h"
#include "runtime/config.h"
#include "tracer/site.h"

namespace etch::detail {

namespace {

using Json = nlohmann::ordered_json;

std::string place(SourceLocation where) {
  if (where.line == 0) return "";
  return join_text({where.file, ":", static_cast<int64_t>(where.line)});
}

std::string milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f ms", ms);
  return text;
}

// The number, from 1, of the path that this one follows; 0: none.
int number_before(const std::vector<PathEnd*>& ends, const PathEnd& end) {
  const auto at = std::find(ends.begin(), ends.end(), end.after);
  return at == ends.end() ? 0 : static_cast<int>(at - ends.begin()) + 1;
}

struct RunTimeScalar {
  int op_index;
  Op op;
  Scalar::Kind kind;
  const Scalar* value;  ///< null: not known yet
};

// Numbers that are arguments of the path, random seeds and offsets among them. Under end.mutex.
std::vector<RunTimeScalar> run_time_scalars(const PathEnd& end) {
  std::vector<RunTimeScalar> scalars;
  size_t slot = 0;
  for (size_t i = 0; i < end.path->ops.size(); ++i) {
    const RecordedOp& op = *end.path->ops[i];
    for (const RecordedOperand& input : op.inputs) {
      const size_t at = slot++;
      if (input.kind != RecordedOperand::Kind::Scalar) continue;
      const Scalar* value = at < end.values.size() ? &end.values[at].scalar : nullptr;
      scalars.push_back({static_cast<int>(i), op.op, input.scalar_kind, value});
    }
    slot += op.outputs.size();
  }
  return scalars;
}

/// JSON has no infinities and no NaN: they are strings.
Json json_value(const Scalar& scalar) {
  if (scalar.kind() == Scalar::Kind::Bool) return scalar.to_bool();
  if (scalar.kind() == Scalar::Kind::Int) return scalar.to_int();
  const double value = scalar.to_double();
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

std::string print(const Scalar& scalar) {
  const Json value = json_value(scalar);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Json describe_scalars(const PathEnd& end) {
  Json list = Json::array();
  for (const RunTimeScalar& scalar : run_time_scalars(end)) {
    Json json = {{"op_index", scalar.op_index}, {"op", std::string(name(scalar.op))}};
    if (scalar.value) json["value"] = json_value(*scalar.value);
    list.push_back(std::move(json));
  }
  return list;
}

Json describe_divergence(const Divergence& divergence) {
  if (divergence.kind == Divergence::Kind::None) return nullptr;
  return {{"op_index", divergence.op_index},
          {"op", std::string(name(divergence.op))},
          {"what", divergence.what},
          {"before", divergence.before},
          {"now", divergence.now}};
}

struct KeptValue {
  int64_t bytes = 0;
  int op_index = 0;  ///< the first op that writes it
  Op op = Op::fused;
};

// What outlives the stream, the largest first. Under end.mutex.
std::vector<KeptValue> kept_values(const PathEnd& end) {
  if (end.executables.empty() && end.live_sets.empty()) return {};
  const LiveSet& live = end.executables.empty() ? end.live_sets.back() : end.executables.front()->live();
  std::vector<KeptValue> kept;
  LiveSet seen(live.size());
  for (size_t i = 0; i < end.path->ops.size(); ++i)
    for (const RecordedOperand& output : end.path->ops[i]->outputs) {
      const auto number = static_cast<size_t>(output.number);
      if (!live[number] || seen[number]) continue;
      seen[number] = true;
      kept.push_back({end.path->storages[number].bytes, static_cast<int>(i), end.path->ops[i]->op});
    }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const KeptValue& a, const KeptValue& b) { return a.bytes > b.bytes; });
  return kept;
}

// "keeps 3 values, 1.5 MiB, beyond its end: op 3 (mul) 1 MiB, ..."
std::string list_kept_values(const PathEnd& end) {
  constexpr size_t kShown = 4;
  const std::vector<KeptValue> kept = kept_values(end);
  if (kept.empty()) return "";
  int64_t bytes = 0;
  for (const KeptValue& value : kept) bytes += value.bytes;
  std::string text =
      join_text({"    keeps ", static_cast<int64_t>(kept.size()), kept.size() == 1 ? " value, " : " values, ",
                 print_bytes(bytes), ", beyond its end: "});
  for (size_t i = 0; i < std::min(kShown, kept.size()); ++i)
    text += join_text(
        {i ? ", op " : "op ", kept[i].op_index, " (", name(kept[i].op), ") ", print_bytes(kept[i].bytes)});
  if (kept.size() > kShown) text += ", ...";
  if (end.reason == FlushReason::HostRead && kept.size() > 1)
    text +=
        "; handles alive at the read keep them: return the value and read it outside, or drop them before";
  return text + "\n";
}

Json describe_kept_values(const PathEnd& end) {
  Json list = Json::array();
  for (const KeptValue& value : kept_values(end))
    list.push_back(
        {{"op_index", value.op_index}, {"op", std::string(name(value.op))}, {"bytes", value.bytes}});
  return list;
}

Json describe_end(PathEnd& end, int after) {
  std::lock_guard lock(end.mutex);
  Json json;
  json["ops"] = end.path->ops.size();
  json["after_path"] = after;
  json["from_path"] = end.divergence.from;
  json["diverged"] = end.divergence.text();
  json["divergence"] = describe_divergence(end.divergence);
  json["flushed_because"] = std::string(describe(end.reason));
  json["flushed_at"] = place(end.where);
  json["compiled_calls"] = end.compiled_calls;
  json["eager_calls"] = end.eager_calls;
  json["declined_calls"] = end.declined_calls;
  json["calls_while_compiling"] = end.calls_while_compiling;
  json["compiles"] = end.compiles;
  json["compile_ms"] = end.compile_ms;
  json["evictions"] = end.evictions;
  json["stays_eager_because"] = end.compile_error;
  json["scalars"] = describe_scalars(end);
  json["kept"] = describe_kept_values(end);
  json["executables"] = Json::array();
  for (const auto& executable : end.executables)
    json["executables"].push_back(Json::parse(executable->report_json(), nullptr, false));
  return json;
}

// "3 run-time numbers: mul 0.5, add 2, ..."
std::string list_scalars(const PathEnd& end) {
  constexpr size_t kShown = 8;
  const std::vector<RunTimeScalar> scalars = run_time_scalars(end);
  if (scalars.empty()) return "";
  std::string text = join_text(
      {"    ", static_cast<int64_t>(scalars.size()), " run-time number", scalars.size() == 1 ? ": " : "s: "});
  for (size_t i = 0; i < std::min(kShown, scalars.size()); ++i) {
    text += join_text({i ? ", " : "", name(scalars[i].op)});
    if (scalars[i].value) text += join_text({" ", print(*scalars[i].value)});
  }
  return text + (scalars.size() > kShown ? ", ...\n" : "\n");
}

// A report's lines, each moved in.
std::string indent(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t line = std::min(text.find('\n'), text.size());
    result += join_text({"    ", text.substr(0, line), "\n"});
    text.remove_prefix(std::min(line + 1, text.size()));
  }
  return result;
}

std::string why_eager(const PathEnd& end, int compile_at) {
  if (!end.compile_error.empty()) return join_text({"cannot be compiled: ", end.compile_error});
  if (!end.executables.empty()) return "";
  const int64_t seen = end.eager_calls + end.compiled_calls;
  if (end.compiling) return "being compiled";
  if (end.evictions)
    return join_text(
        {"its plan was evicted, as the least recently used (ETCH_MAX_EXECUTABLES); compiled again "
         "when seen again"});
  if (seen < compile_at)
    return join_text({"seen ", seen, " time", seen == 1 ? "" : "s", "; compiled at sighting ", compile_at});
  return join_text({"the values that outlive it differed between its ", seen, " calls"});
}

}  // namespace

std::string explain_json(const Site& site) {
  Json json;
  json["name"] = site.options().name;
  json["calls"] = site.calls.load();
  json["gave_up"] = site.gave_up();
  json["eager_calls_after_giving_up"] = site.eager_calls_after_giving_up.load();
  json["paths"] = Json::array();
  site.watch();
  const std::vector<PathEnd*> ends = site.ends();
  for (size_t i = 0; i < ends.size(); ++i)
    json["paths"].push_back(describe_end(*ends[i], number_before(ends, *ends[i])));
  return json.dump(2);
}

std::string explain(const Site& site) {
  site.watch();
  const std::vector<PathEnd*> ends = site.ends();
  std::string text =
      join_text({site.options().name, ": ", site.calls.load(), " calls, ", static_cast<int64_t>(ends.size()),
                 ends.size() == 1 ? " path\n" : " paths\n"});
  if (config().disable) text += "  ETCH_DISABLE is set: everything runs eagerly\n";
  if (site.gave_up())
    text += join_text(
        {"  more than ", site.options().max_paths, " paths: ", site.eager_calls_after_giving_up.load(),
         " calls since took none of these and ran eagerly, at least in part. Shapes that grow make a "
         "path each: pad them to a few sizes.\n"});
  for (size_t i = 0; i < ends.size(); ++i) {
    PathEnd* end = ends[i];
    std::lock_guard lock(end->mutex);
    text += join_text({"  path ", static_cast<int64_t>(i) + 1, ": ",
                       static_cast<int64_t>(end->path->ops.size()), " ops, until ", describe(end->reason)});
    if (end->reason != FlushReason::EndOfBody) text += at_place(end->where);
    text += join_text({"\n    ran compiled ", end->compiled_calls, ", op by op ", end->eager_calls});
    if (end->calls_while_compiling)
      text += join_text({" (", end->calls_while_compiling, " while it was being compiled)"});
    if (end->declined_calls)
      text += join_text({" (", end->declined_calls, " declined by a check of the data)"});
    if (end->compiles)
      text += join_text({"; compiled ", end->compiles, " time", end->compiles == 1 ? "" : "s", " in ",
                         milliseconds(end->compile_ms)});
    if (end->evictions)
      text += join_text({"; evicted ", end->evictions, " time", end->evictions == 1 ? "" : "s"});
    text += "\n";
    if (const int before = number_before(ends, *end))
      text += join_text({"    follows path ", before, ", after ", describe(end->after->reason),
                         at_place(end->after->where), "\n"});
    if (end->divergence.kind != Divergence::Kind::None)
      text += join_text({"    differs from path ", end->divergence.from, ": ", end->divergence.text(), "\n"});
    if (const std::string eager = why_eager(*end, site.options().compile_at); !eager.empty())
      text += join_text({"    runs op by op: ", eager, "\n"});
    text += list_scalars(*end);
    text += list_kept_values(*end);
    for (const auto& executable : end->executables) text += indent(executable->report());
  }
  return text;
}

}  // namespace etch::detail
