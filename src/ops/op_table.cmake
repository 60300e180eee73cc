# cmake -DTABLE=out.cc -DFOLDER=src/ops -P op_table.cmake: writes the table of operators, if it changed.
file(GLOB sources "${FOLDER}/*.cc")
list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|_main)\\.cc$")
set(names)
foreach(source IN LISTS sources)
  file(STRINGS "${source}" lines REGEX "^(extern )?const OpDef op_[A-Za-z0-9_]+")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^(extern )?const OpDef op_([A-Za-z0-9_]+).*" "\\2" name "${line}")
    list(APPEND names "${name}")
  endforeach()
endforeach()
list(SORT names)
set(text "// Made by src/ops/op_table.cmake from the files in src/ops.\n#include <map>\n\n#include \"graph/op_def.h\"\n\nnamespace leeway {\n\n")
foreach(name IN LISTS names)
  string(APPEND text "extern const OpDef op_${name};\n")
endforeach()
string(APPEND text "\nnamespace {\nconst OpDef* const kAllOps[] = {\n")
foreach(name IN LISTS names)
  string(APPEND text "    &op_${name},\n")
endforeach()
string(APPEND text "};\n
std::map<std::string_view, const OpDef*> ByName() {
  std::map<std::string_view, const OpDef*> table;
  for (const OpDef* op : kAllOps) table.emplace(op->name, op);
  return table;
}
std::map<std::string_view, const OpDef*> ByTfliteName() {
  std::map<std::string_view, const OpDef*> table;
  for (const OpDef* op : kAllOps) {
    for (const char* name : op->tflite) table.emplace(name, op);
  }
  return table;
}
const OpDef* Lookup(const std::map<std::string_view, const OpDef*>& table, std::string_view name) {
  auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}
}  // namespace

const OpDef* FindOp(std::string_view name) {
  static const std::map<std::string_view, const OpDef*> table = ByName();
  return Lookup(table, name);
}
const OpDef* FindOpForTflite(std::string_view tflite_name) {
  static const std::map<std::string_view, const OpDef*> table = ByTfliteName();
  return Lookup(table, tflite_name);
}
std::span<const OpDef* const> AllOps() { return kAllOps; }

}  // namespace leeway
")
set(old)
if(EXISTS "${TABLE}")
  file(READ "${TABLE}" old)
endif()
if(NOT "${old}" STREQUAL "${text}")
  file(WRITE "${TABLE}" "${text}")
endif()
