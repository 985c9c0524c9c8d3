// One connection of the simulated network, with what can go wrong on it. Internal to SimWorld.
//
// A frame leaves its sender in steps, flies, and is put together again at the receiver, so that
// both memories are touched at different times, as with sockets. Each direction is a queue:
// whatever is late delays what comes after it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "net/sim_network.h"

namespace mooncake::net {

// One life of one host.
struct SimPeer {
  SimPeer(std::string name_, os::SimHost& executor_)
      : name(std::move(name_)), executor(executor_) {}
  const std::string name;
  os::SimHost& executor;  // not to be touched when no longer alive
  bool alive = true;
};

// What all connections of a world share.
struct SimContext {
  base::Random& random;
  const SimFaults* faults;  // null when the world is gone
  SimWorld::Counters counters{};
  std::set<std::pair<std::string, std::string>> partitions{};

  base::Duration latency();
  base::Duration up_to(base::Duration limit);
  bool partitioned(const std::string& a, const std::string& b) const;
};

class SimConnection final : public std::enable_shared_from_this<SimConnection> {
 public:
  // Side 0 is the one that connected.
  SimConnection(std::shared_ptr<SimContext> context, std::shared_ptr<SimPeer> connected,
                std::shared_ptr<SimPeer> accepted);

  // Once for each side.
  std::unique_ptr<Channel> channel(int side);

  Result<void> send(int side, FrameHeader header, base::ConstBuffers payload);
  // Tasks that keep the connection alive while they run.
  static Task<Result<void>> send_from(std::shared_ptr<SimConnection> self, int side,
                                      FrameHeader header, PayloadSource& source, std::size_t size);
  static Task<Result<FrameHeader>> receive(std::shared_ptr<SimConnection> self, int side);
  static Task<Result<void>> receive_payload(std::shared_ptr<SimConnection> self, int side,
                                            PayloadSink& sink, std::size_t size);
  void set_version(int side, std::uint8_t version) { ends_[side].version = version; }
  void set_stall_timeout(int side, base::Duration timeout) { ends_[side].stall_timeout = timeout; }
  Backlog backlog(int side) const;
  // What is on its way still arrives, and then the end of the connection does.
  void close(int side, Error reason);
  bool closed(int side) const;
  const PeerInfo& peer(int side) const { return ends_[side].peer; }

  bool is_at(int side, const SimPeer& host) const { return ends_[side].host.get() == &host; }
  // After a partition has healed: ends of connections that were held back go on.
  void heal();

 private:
  using Done = os::Completion<Result<void>>;

  struct Outgoing {
    FrameHeader header;
    base::TimePoint since{};
    std::vector<std::byte> bytes;
    PayloadSource* source = nullptr;
    Done* sender = nullptr;  // who waits until `source` has been read
    std::size_t left = 0;    // payload bytes that have not left yet
    bool begun = false;
  };
  // What arrives together: a part of a frame, or the end of the connection.
  struct Item {
    FrameHeader header;
    std::vector<std::byte> bytes;
    bool first = false;
    bool last = false;
    bool breaks = false;
  };
  struct Incoming {
    FrameHeader header;
    std::vector<std::byte> bytes;  // arrived
    std::size_t taken = 0;
  };
  enum class Fate { kNone, kLose, kCut, kDuplicate };
  // What becomes of a message of several frames.
  struct Message {
    Fate fate = Fate::kNone;
    std::uint64_t frames_before_loss = 0;
  };
  // From one side to the other.
  struct Direction {
    std::deque<Outgoing> outgoing;
    std::size_t outgoing_bytes = 0;             // copied ones
    bool pumping = false;                       // the pump is in its executor's queue
    std::optional<base::TimePoint> full_since;  // the receiver does not take what has left
    bool watched = false;                       // a timer looks after that
    bool dead = false;                          // nothing that is sent from now on arrives
    std::map<std::uint32_t, Message> messages;  // that have begun, by request id
    Fate fate = Fate::kNone;                    // of the frame that is leaving
    bool vanishes = false;                      // that frame goes into a partition
    std::size_t lost_below = 0;                 // and is lost when fewer bytes than this are left

    std::deque<Item> wire;
    std::size_t unread = 0;  // payload bytes on the wire and in the inbox
    base::TimePoint last_arrival{};
    base::TimePoint stalled_until{};
    bool break_held = false;      // by a partition
    bool mid_frame = false;       // the last item that arrived was not the last of its frame
    bool dropping = false;        // the frame that arrives is a reply to a duplicate
    std::deque<Item> duplicates;  // that wait for the end of the frame which is arriving
  };
  struct End {
    std::shared_ptr<SimPeer> host;
    PeerInfo peer;
    std::deque<Incoming> inbox;
    bool opened = false;  // the header of the first frame has been handed out
    os::Completion<bool>* receiver = nullptr;
    std::optional<Error> closed;  // by its owner
    bool broken = false;          // by the network
    std::uint8_t version = kFrameVersion;
    base::Duration stall_timeout = std::chrono::seconds(30);
  };
  // Request ids as the receiver of the requests sees them: duplicates need ids of their own, and
  // ids rise. Kept for the life of the connection, since data may follow a reply.
  struct Numbers {
    std::uint32_t shift = 0;
    std::uint32_t highest = 0;
    std::map<std::uint32_t, std::uint32_t> seen_as, known_as;  // sender's -> receiver's, and back
    std::set<std::uint32_t> duplicates;
  };

  Result<void> enqueue(int side, Outgoing frame);
  void start_pump(int side);
  void pump(int side);
  void stand_still(int side);
  void check_for_stall(int side);
  std::size_t pump_step(int side, std::size_t budget);
  static std::vector<std::byte> read(Outgoing& frame, std::size_t size);
  void begin_frame(int side, Outgoing& frame);
  void end_frame(int side);
  Message roll(const FrameHeader& header);
  void duplicate(int side, const Outgoing& frame);

  void put_on_wire(int side, Item item, base::Duration extra);
  void schedule_delivery(int side, base::TimePoint when);
  void deliver(int side);
  void arrive(int side, Item item);
  void arrive_duplicates(int side);
  void number(int side, FrameHeader& header);

  void lose(int side);
  void cut(int side);
  void break_end(int side);
  void end_outgoing(int side, const Result<void>& outcome);
  void wake(int side);
  Error gone(int side) const;
  bool first_is_complete(const End& end) const;
  void pop_front(int side);
  std::size_t take(int side, PayloadSink& sink, std::size_t size);

  const std::shared_ptr<SimContext> context_;
  End ends_[2];
  Direction from_[2];   // from_[0] leads from side 0 to side 1
  Numbers numbers_[2];  // of the requests that side makes
};

}  // namespace mooncake::net
