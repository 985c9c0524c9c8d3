// What the demo's parent and its nodes say to each other: one JSON object a line, over a socket
// pair.
#pragma once

#include <mooncake/result.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mooncake::demo {

// Room for 2^20 block ids, which is what a trace may hold in one request.
inline constexpr std::size_t kMaxLineBytes = std::size_t{32} << 20;
// The node's end of the socket pair, inherited under this number.
inline constexpr int kControlFd = 3;

// Parent to node. Setup comes first and once, Peers before the first Work.
struct Setup {
  std::string role;  // prefill, decode or storage
  std::string name;
  std::string master;  // host:port
  std::uint64_t segment_bytes = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t slots = 0;        // places for a window of blocks in this node's buffer
  std::uint64_t slot_blocks = 0;  // blocks of a window
  std::uint64_t seed = 0;
  std::uint32_t replicas = 1;
  std::string path;  // of hand-offs
  bool operator==(const Setup&) const = default;
};
struct DecodePeer {
  std::string name;
  std::string segment;        // to open
  std::uint64_t address = 0;  // of its buffer, in its process
  bool operator==(const DecodePeer&) const = default;
};
struct Peers {
  std::vector<DecodePeer> decode;
  bool operator==(const Peers&) const = default;
};
// One byte that the prefill node flips between put and hand-off.
struct Corruption {
  std::uint64_t position = 0;  // of the block in its request
  std::uint64_t offset = 0;    // in the block
  bool operator==(const Corruption&) const = default;
};
struct Work {
  std::uint64_t request = 0;  // counts from 0 in trace order
  std::vector<std::uint64_t> ids;
  std::optional<Corruption> corruption;
  bool operator==(const Work&) const = default;
};
// Where the request's next window goes.
struct Slot {
  std::uint64_t request = 0;
  std::uint64_t decode = 0;  // index in Peers
  std::uint64_t slot = 0;
  bool operator==(const Slot&) const = default;
};
struct Verify {
  std::uint64_t request = 0;
  std::uint64_t slot = 0;
  std::uint64_t first = 0;  // position of ids[0] in its request
  std::vector<std::uint64_t> ids;
  bool operator==(const Verify&) const = default;
};
struct Stop {
  bool operator==(const Stop&) const = default;
};

// Node to parent.
struct Ready {
  std::string segment;
  std::uint64_t address = 0;  // of the buffer; 0 = none
  bool operator==(const Ready&) const = default;
};
// The longest cached prefix. Again, with fewer, when one of its blocks could not be read after all;
// blocks from `hits` on are going to be written by this node.
struct Found {
  std::uint64_t request = 0;
  std::uint64_t hits = 0;
  bool operator==(const Found&) const = default;
};
// One call that moved blocks; no call when there were none to move.
struct Call {
  std::uint64_t bytes = 0;
  std::uint64_t microseconds = 0;
  bool operator==(const Call&) const = default;
};
struct WrongBlock {
  std::uint64_t request = 0;
  std::uint64_t block = 0;  // id
  std::uint64_t position = 0;
  std::uint64_t offset = 0;  // of the first wrong byte
  std::string node;          // that found it
  std::string stage;         // what had brought the bytes: "store get" or "hand-off"
  bool operator==(const WrongBlock&) const = default;
};
// Bytes that were compared with what they should be. `wrong` names the first few.
struct Check {
  std::uint64_t bytes = 0;
  std::uint64_t wrong_blocks = 0;
  std::vector<WrongBlock> wrong;
  bool operator==(const Check&) const = default;
};
inline constexpr std::size_t kMaxWrongNamed = 8;

// The blocks of a request before `up_to` are in the Store or will not be: nobody writes them now.
struct Stored {
  std::uint64_t request = 0;
  std::uint64_t up_to = 0;
  std::map<std::int32_t, std::uint64_t> not_stored;  // blocks by the Store's code
  Call get;
  Call put;
  Check check;
  bool operator==(const Stored&) const = default;
};
// A window lies in the slot that was granted for it.
struct Handed {
  std::uint64_t request = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  bool last = false;  // the node is free for another request
  Call call;
  std::map<std::string, std::string> reasons;  // path -> why it was chosen
  bool operator==(const Handed&) const = default;
};
struct Verified {
  std::uint64_t request = 0;
  std::uint64_t slot = 0;
  Check check;
  bool operator==(const Verified&) const = default;
};
struct Stopped {
  std::map<std::string, std::uint64_t> bytes_by_path;  // moved at this node's request
  bool operator==(const Stopped&) const = default;
};

using Message = std::variant<Setup, Peers, Work, Slot, Verify, Stop, Ready, Found, Stored, Handed,
                             Verified, Stopped>;

// Without the line feed.
std::string encode(const Message& message);
// kProtocolError says what is wrong with the line.
Result<Message> decode(std::string_view line);

// One end of a socket pair, not blocking. One thread may send while another receives.
class ControlChannel {
 public:
  ControlChannel() = default;
  explicit ControlChannel(int fd);  // takes the descriptor
  ~ControlChannel();
  ControlChannel(ControlChannel&& other) noexcept;
  ControlChannel& operator=(ControlChannel&& other) noexcept;

  int fd() const { return fd_; }
  // Writes what the socket takes and keeps the rest for flush(). What can't be delivered shows when
  // receiving.
  void send(const Message& message);
  // Waits until the socket has taken all.
  void send_all(const Message& message);
  void flush();
  bool has_unsent() const { return sent_ < outgoing_.size(); }
  // The messages that have come. kConnectionLost at the end of the stream, kProtocolError for a
  // line that is none, or too long.
  Result<std::vector<Message>> receive();

  // Wakes a thread that polls this end: it sees the end of the stream.
  void shut_down();

 private:
  void close();

  int fd_ = -1;
  std::string outgoing_;
  std::size_t sent_ = 0;  // of outgoing_
  std::string incoming_;  // begin of a line
};

}  // namespace mooncake::demo
