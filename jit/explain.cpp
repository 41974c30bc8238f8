// What a traced function did and why, as text and as JSON.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "jit/compile.h"
#include "runtime/config.h"
#include "tracer/site.h"

namespace etch::detail {

namespace {

using Json = nlohmann::ordered_json;

std::string place(SourceLocation where) {
  if (where.line == 0) return "";
  return concat({where.file, ":", static_cast<int64_t>(where.line)});
}

std::string milliseconds(double ms) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f ms", ms);
  return text;
}

Json describe_end(PathEnd& end) {
  std::lock_guard lock(end.mutex);
  Json json;
  json["ops"] = end.path->ops.size();
  json["diverged"] = end.diverged;
  json["flushed_because"] = std::string(describe(end.reason));
  json["flushed_at"] = place(end.where);
  json["compiled_calls"] = end.compiled_calls;
  json["eager_calls"] = end.eager_calls;
  json["declined_calls"] = end.declined_calls;
  json["compiles"] = end.compiles;
  json["compile_ms"] = end.compile_ms;
  json["stays_eager_because"] = end.compile_error;
  json["executables"] = Json::array();
  for (const auto& executable : end.executables)
    json["executables"].push_back(Json::parse(executable->report_json(), nullptr, false));
  return json;
}

// A report's lines, each moved in.
std::string indent(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t line = std::min(text.find('\n'), text.size());
    result += concat({"    ", text.substr(0, line), "\n"});
    text.remove_prefix(std::min(line + 1, text.size()));
  }
  return result;
}

std::string why_eager(const PathEnd& end, int compile_at) {
  if (!end.compile_error.empty()) return concat({"cannot be compiled: ", end.compile_error});
  if (!end.executables.empty()) return "";
  const int64_t seen = end.eager_calls + end.compiled_calls;
  if (seen < compile_at)
    return concat({"seen ", seen, " time", seen == 1 ? "" : "s", "; compiled at sighting ", compile_at});
  return concat({"the values that outlive it differed between its ", seen, " calls"});
}

}  // namespace

std::string explain_json(const Site& site) {
  Json json;
  json["name"] = site.options().name;
  json["calls"] = site.calls.load();
  json["gave_up"] = site.gave_up();
  json["eager_calls_after_giving_up"] = site.eager_calls_after_giving_up.load();
  json["paths"] = Json::array();
  for (PathEnd* end : site.ends()) json["paths"].push_back(describe_end(*end));
  return json.dump(2);
}

std::string explain(const Site& site) {
  const std::vector<PathEnd*> ends = site.ends();
  std::string text = concat({site.options().name, ": ", site.calls.load(), " calls, ",
                             static_cast<int64_t>(ends.size()), ends.size() == 1 ? " path\n" : " paths\n"});
  if (config().disable) text += "  ETCH_DISABLE is set: everything runs eagerly\n";
  if (site.gave_up())
    text +=
        concat({"  more than ", site.options().max_paths, " paths: ", site.eager_calls_after_giving_up.load(),
                " calls since ran eagerly. Shapes that grow make a path each: pad them to a few sizes.\n"});
  int number = 0;
  for (PathEnd* end : ends) {
    std::lock_guard lock(end->mutex);
    text += concat({"  path ", ++number, ": ", static_cast<int64_t>(end->path->ops.size()), " ops, until ",
                    describe(end->reason)});
    if (end->reason != FlushReason::EndOfBody && end->where.line) text += concat({" at ", place(end->where)});
    text += concat({"\n    ran compiled ", end->compiled_calls, ", op by op ", end->eager_calls});
    if (end->declined_calls) text += concat({" (", end->declined_calls, " declined by a check of the data)"});
    if (end->compiles)
      text += concat({"; compiled ", end->compiles, " time", end->compiles == 1 ? "" : "s", " in ",
                      milliseconds(end->compile_ms)});
    text += "\n";
    if (!end->diverged.empty()) text += concat({"    differs from an earlier path: ", end->diverged, "\n"});
    if (const std::string eager = why_eager(*end, site.options().compile_at); !eager.empty())
      text += concat({"    runs op by op: ", eager, "\n"});
    for (const auto& executable : end->executables) text += indent(executable->report());
  }
  return text;
}

}  // namespace etch::detail
