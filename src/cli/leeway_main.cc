// The leeway command.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "cli/common.h"

int main(int argc, char** argv) {
  using namespace leeway::cli;
  setenv("LEEWAY_QUIET_DRIVERS", "1", 0);  // what matters of their remarks is in the reports
  CLI::App app{"Runs machine-learning models on whatever GPU this machine has."};
  app.require_subcommand(1);
  app.set_version_flag("--version", leeway::VersionText());
  Action action;
  AddDevicesCommand(app, action);
  AddRunCommand(app, action);
  AddInspectCommand(app, action);
  AddCheckCommand(app, action);
  AddBenchCommand(app, action);
  AddPullCommand(app, action);
  AddTokenizeCommand(app, action);
  AddChatCommand(app, action);
  AddGenerateCommand(app, action);
  AddScoreCommand(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? kDone : kUsage; }
  return action();
}
