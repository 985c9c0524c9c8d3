// mooncake: the command for people.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/say.h"
#include "demo.h"
#include "demo_node.h"
#include "demo_options.h"
#include "doctor.h"
#include "doctor_paths.h"
#include "why_command.h"

namespace {

using namespace mooncake;

constexpr int kExitUsage = 2;
constexpr int kExitFailed = 3;

// What the chosen subcommand does; its exit status.
using Command = std::function<int()>;

// Options come from the settings table, which also judges their values.
void add_demo(CLI::App& app, Command& chosen) {
  CLI::App* const demo = app.add_subcommand(
      "demo", "Replay a trace of requests over a cluster of processes on this machine");
  auto given = std::make_shared<std::map<std::string, std::string>>();
  for (const Setting& setting : demo::demo_settings()) {
    const std::string name(setting.name);
    const std::string help(setting.help);
    if (setting.type == SettingType::kBool) {
      demo->add_flag_callback(
          "--" + name, [given, name] { (*given)[name] = "true"; }, help);
      continue;
    }
    demo->add_option_function<std::string>(
            "--" + name, [given, name](const std::string& text) { (*given)[name] = text; }, help)
        ->type_name(setting.type == SettingType::kText ? "FILE|sample" : "N")
        ->default_str(std::string(setting.fallback));
  }
  demo->callback([given, &chosen] { chosen = [given] { return demo::demo_command(*given); }; });
  demo->footer(
      "Exit status: 0 every byte right; 1 a byte was wrong; 2 the options or the trace; 3 a "
      "process\n"
      "failed, which is named; 128+N ended by signal N.");
  // The demo starts its nodes as this; nobody else does.
  app.add_subcommand("demo-node", "")->group("")->callback([&chosen] {
    chosen = demo::node_command;
  });
}

void add_doctor(CLI::App& app, Command& chosen) {
  CLI::App* const doctor = app.add_subcommand("doctor",
                                              "Settings with their source, what this machine "
                                              "allows, the paths to memory of each kind and to "
                                              "each peer");
  auto options = std::make_shared<doctor::Options>();
  doctor->add_flag("--json", options->json, "one JSON document");
  doctor->add_option("--master", options->master, "Master to ask, host:port")->type_name("ADDRESS");
  doctor->add_option("--peer", options->peers, "engine to reach, host:port; may be repeated")
      ->type_name("ADDRESS");
  doctor->add_option("--timeout-ms", options->timeout_ms, "of each question")
      ->capture_default_str()
      ->check(CLI::Range(1, 600'000));
  doctor->callback([options, &chosen] { chosen = [options] { return doctor::run(*options); }; });
  // The doctor starts one as this, to have somebody to try the paths with.
  CLI::App* const peer = app.add_subcommand("doctor-peer", "")->group("");
  auto offered = std::make_shared<doctor::Offered>();
  peer->add_option("name", offered->name)->required();
  peer->add_option("pool", offered->pool)->required();
  peer->add_option("plain", offered->plain)->required();
  peer->callback(
      [offered, &chosen] { chosen = [offered] { return doctor::peer_command(*offered); }; });
}

void add_why(CLI::App& app, Command& chosen) {
  CLI::App* const why =
      app.add_subcommand("why", "Why a key is there or missing, and what became of it");
  auto options = std::make_shared<why::Options>();
  why->add_option("key", options->key, "the key")->required();
  why->add_flag("--json", options->json, "one JSON document");
  why->add_option("--master", options->master, "Master to ask, host:port")->type_name("ADDRESS");
  why->add_option("--timeout-ms", options->timeout_ms, "of the question")
      ->capture_default_str()
      ->check(CLI::Range(1, 600'000));
  why->footer(
      "Exit status: 0 the key is there; 1 it is not; 2 the options; 3 the Master did not answer.");
  why->callback([options, &chosen] { chosen = [options] { return why::run(*options); }; });
}

int run(int argc, char** argv) {
  CLI::App app{"Mooncake: KV-cache blocks between prefill, store and decode processes.",
               "mooncake"};
  app.set_version_flag("--version", "mooncake " MOONCAKE_VERSION);
  app.require_subcommand(1);
  Command chosen;
  add_demo(app, chosen);
  add_doctor(app, chosen);
  add_why(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are "errors" with status 0.
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  // A closed stderr must not make a message an abort.
  if (::fcntl(STDERR_FILENO, F_GETFD) < 0) {
    static_cast<void>(std::freopen("/dev/null", "w", stderr));
  }
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    program::say(stderr, "mooncake: the result could not be written to stdout\n");
    return status != 0 ? status : kExitFailed;
  } catch (const std::exception& error) {
    program::say(stderr, "mooncake: {}\n", error.what());
    return kExitFailed;
  }
}
