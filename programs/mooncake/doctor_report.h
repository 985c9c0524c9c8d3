// What the doctor has found, and how it says it: as text, or as one JSON document that carries the
// same.
#pragma once

#include <string>
#include <vector>

#include "mooncake/config.h"

namespace mooncake::doctor {

struct Finding {
  std::string name;
  std::string value;
  std::string advice = {};  // empty = fine
};

// One transport to somebody.
struct Path {
  std::string transport;
  bool usable = false;
  std::string reason;
};

// What leads to memory of one kind, best first; what is not usable comes last.
struct MemoryPaths {
  std::string memory;
  std::vector<Path> paths;
};

struct Peer {
  std::string name;
  std::string state;  // "reachable", or why not
  bool ok = false;
  std::vector<Path> paths;
};

struct Report {
  std::vector<Settings::Row> settings;
  std::vector<Finding> machine;
  std::vector<Finding> shared_memory;
  std::vector<MemoryPaths> paths;
  std::vector<Peer> peers;
  bool healthy = true;
};

void print_text(const Report& report);
void print_json(const Report& report);

}  // namespace mooncake::doctor
