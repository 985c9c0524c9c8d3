// PrefillNode: serves one request at a time, in windows that fit its buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "demo_control.h"
#include "demo_node.h"

namespace mooncake::demo {

class PrefillNode {
 public:
  PrefillNode(Node& node, ControlChannel& control, Inbox& inbox);

  Result<void> meet(const Peers& peers);
  // Finds the longest cached prefix, reads it, computes and stores the rest, and hands all blocks
  // to decode nodes. A missing block is no error; a hand-off that fails is one.
  Result<void> serve(const Work& work);

 private:
  struct Window {
    std::uint64_t request = 0;
    std::uint64_t first = 0;  // position of ids[0] in the request
    std::span<const std::uint64_t> ids;
    std::uint64_t end() const { return first + ids.size(); }
  };

  std::uint64_t find_prefix(const Work& work);
  // Reads the window's blocks before `hits` and returns where the prefix ends after all.
  std::uint64_t read(const Window& window, std::uint64_t hits, Stored& report);
  void compute(const Window& window, std::uint64_t from);
  // What finds no room is counted; a Store that does not answer is an error.
  Result<void> put(const Window& window, std::uint64_t from, Stored& report);
  Result<void> hand_off(const Window& window, bool last);
  void corrupt(const Window& window, const Corruption& corruption);

  Node& node_;
  ControlChannel& control_;
  Inbox& inbox_;
  std::vector<DecodePeer> peers_;
  std::vector<SegmentHandle> segments_;  // of peers_
  std::vector<std::string> keys_;        // of the request
};

}  // namespace mooncake::demo
