// What a KeyReport comes to in words.
#pragma once

#include <string>
#include <string_view>

#include "mooncake/why.h"

namespace mooncake::store {

// Fills in the report's reason and summary from its facts. Keys are quoted, and safe to show.
void explain(std::string_view key, KeyReport& report);

// For people: one line for each event, newest first, and a last one that says how far back the
// Master remembers.
std::string timeline(const KeyReport& report);

// One JSON object, everything that is known, in one line. Bytes of the key that are no UTF-8 are
// replaced by U+FFFD.
std::string report_json(std::string_view key, const KeyReport& report);

// "0.3 s", "12 s", "3 min", "5 h", "2 days".
std::string format_age(std::chrono::milliseconds age);

}  // namespace mooncake::store
