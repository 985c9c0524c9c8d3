// Core::State: what the commands work on. Internal to core*.cpp, one file for each kind of command.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/master/allocation/placement.h"
#include "store/master/core.h"
#include "store/master/directory.h"
#include "store/master/event_ring.h"
#include "store/master/eviction/make_policy.h"
#include "store/master/held_bytes.h"
#include "store/master/outcomes.h"
#include "store/master/pin_ends.h"
#include "store/master/segment_table.h"

namespace mooncake::store::master {

struct Client {
  Client(ClientId id_, OutcomeBudget& budget) : id(id_), outcomes(budget) {}

  const ClientId id;
  std::string name;
  std::uint64_t host_hash = 0;
  std::uint64_t sequence = 0;  // of its last mount, unmount or heartbeat
  bool mounted = false;
  std::uint64_t seen = 0;               // ns; when departed: since when
  std::vector<std::uint32_t> segments;  // handles
  Outcomes outcomes;
  std::list<Client*>::iterator position;  // in `mounted` or `departed`
};

// Who is here, in order of their last sign of life, and who was: for a while the departed are
// remembered, so that their late messages are known for what they are.
struct Clients {
  std::unordered_map<std::uint64_t, std::unique_ptr<Client>> all;
  std::list<Client*> mounted;
  std::list<Client*> departed;
  OutcomeBudget budget;
  std::uint64_t grace_until = 0;  // ns; nobody expires before

  Client* find(ClientId id) const {
    const auto found = all.find(static_cast<std::uint64_t>(id));
    return found == all.end() ? nullptr : found->second.get();
  }
  Client* find_mounted(ClientId id) const {
    Client* client = find(id);
    return client != nullptr && client->mounted ? client : nullptr;
  }
};

// How the policy sees entries.
struct PolicyStore {
  Directory* directory;
  QueueLinks& links(std::uint32_t entry) const { return (*directory)[entry].queue; }
  std::uint8_t& bits(std::uint32_t entry) const { return (*directory)[entry].policy_bits; }
  std::uint64_t until(std::uint32_t entry) const { return (*directory)[entry].until; }
  std::uint64_t hash(std::uint32_t entry) const { return (*directory)[entry].hash_high; }
  std::uint64_t size(std::uint32_t entry) const { return (*directory)[entry].size; }
};

// Open grants, the first to expire first.
struct OpenGrants {
  std::uint32_t first = kNoEntry;
  std::uint32_t last = kNoEntry;
};

// Published objects that may be evicted, and their bytes.
struct Candidates {
  Candidates(EvictionKind kind, Directory& directory, std::uint64_t lease_ns)
      : policy(make_policy(kind, PolicyStore{&directory}, lease_ns)), held(lease_ns) {}
  std::uint64_t evictable() const { return bytes - held.held(); }

  std::unique_ptr<EvictionPolicy> policy;
  HeldBytes held;           // by leases
  std::uint64_t bytes = 0;  // in units
};

// What a reader is told of a published object (core_get.cpp).
void describe(const Entry& entry, Effect& effect);

struct Core::State {
  explicit State(const CoreOptions& options_);

  // One item of a numbered command, while it is answered.
  struct Item {
    Client& client;
    const Command& command;
    const CommandItem& item;
    std::uint64_t number;
    base::Hash128 hash;
  };
  using Answer = void (State::*)(const Item&, Effect&);

  // An extent that belongs to no entry.
  struct Resting {
    std::uint32_t segment = 0;  // handle
    std::uint32_t extent = 0;
    std::uint64_t until = 0;      // ns
    std::uint64_t hash_high = 0;  // of the key that it was granted to
    bool cost_victims = false;    // that grant; said of one of its extents
  };

  // core.cpp
  void apply(const Command& command);
  void numbered(const Command& command, Answer answer);
  void answer_numbered(const Item& item, Answer answer, Effect& effect);
  void forget_below(Client& client, std::uint64_t oldest_open);
  void refuse(const Command& command, Code code);
  void note(KeyEventKind event, const Entry& entry);
  bool next_version(Version& version);
  std::uint64_t bytes_of(const Entry& entry) const;  // in units, of the replicas that are there
  void free_replica(Entry& entry, std::size_t replica);
  void close_gaps(Entry& entry);
  void erase(std::uint32_t number);
  void link_open(std::uint32_t number);
  void unlink_open(std::uint32_t number);

  // core_put.cpp
  void grant(const Item& item, Effect& effect);
  void publish(const Item& item, Effect& effect);
  void revoke(const Item& item, Effect& effect);
  Code check_terms(const GrantTerms& terms) const;
  Code make_way(const GrantTerms& terms, std::uint32_t first);
  void note_terms(const GrantTerms& terms, Entry& entry) const;
  void settle_pins(Entry& entry, const Entry* replaced) const;
  Code find_room(std::uint64_t units, const Item& item, std::vector<Placer::Chosen>& chosen);
  Code may_make_room(std::uint64_t units);
  bool is_coming(const Segment& segment, std::uint64_t units) const;
  bool may_evict_for_another(std::uint64_t units, const std::vector<Placer::Chosen>& chosen) const;
  bool evict_for(std::uint64_t units, std::vector<Placer::Chosen>& chosen);
  void tell_shortage(std::uint64_t units);
  Code find_write(const Item& item, std::uint32_t& first, std::uint32_t& number) const;
  Code check_replicas(const Item& item, const Entry& entry) const;
  void make_visible(std::uint32_t number, std::uint32_t first);

  // core_resting.cpp
  bool set_aside(Entry& entry, std::size_t replica);
  void end_rests();
  void end_rests_in(Segment& segment);
  void end_rest(const Resting& rest);
  bool evicts_in_vain(const base::Hash128& key) const;

  // core_get.cpp
  void read(const Command& command);
  void locate(std::uint32_t number, Effect& effect);
  void exist(std::uint32_t number, Effect& effect);
  void remove(const Item& item, Effect& effect);
  void lease(std::uint32_t number, Entry& entry);
  void sweep(const Command& command);
  void sweep_numbered(const Item& item, Effect& effect);
  void sweep_some(const Command& command, Effect& effect);
  void drop_published(std::uint32_t number, KeyEventKind event);

  // core_segments.cpp
  void mount(const Command& command);
  void unmount(const Command& command);
  void heartbeat(const Command& command);
  Code raise_epoch_above(Epoch seen);
  Code check_segment(const Command& command, std::size_t index);
  Client* admit(ClientId id);
  void unmount_unnamed(Client& client, const Command& command);
  void begin_leaving(Segment& segment);
  bool lies_in_leaving(const Entry& entry) const;
  void drop_segment(Client& client, Segment& segment, KeyEventKind event);
  void lose_replica(std::uint32_t number, const Segment& segment, std::uint32_t extent,
                    KeyEventKind event);
  void disown(const Command& command);
  void prepare(Segment& segment, std::uint64_t bytes);
  void alive(Client& client);
  void depart(Client& client, KeyEventKind event);

  // core_expiry.cpp
  void tick(const Command& command);
  void expire_clients(std::size_t& budget);
  void end_leaving(std::size_t& budget);
  std::uint64_t staying_bytes() const;
  void expire_grants(std::size_t& budget);
  void evict_to_watermark(std::size_t& budget);
  void release_grant(std::uint32_t number, KeyEventKind event);
  void release_grants_of(const Client& client);

  // core_pins.cpp
  Candidates* candidates_of(const Entry& entry);  // null: not to be evicted
  void note_leaving(std::uint32_t number);
  void enter(std::uint32_t number);
  void leave(std::uint32_t number);
  void forget_bytes(const Entry& entry, std::uint64_t bytes);  // of a published object
  void note_pin_end(std::uint32_t number);
  bool is_pin_end(const PinEnds::End& end) const;
  void end_soft_pins(std::size_t& budget);
  std::uint64_t evictable_bytes() const;
  std::uint32_t next_victim(bool soft_pinned_too);  // kNoEntry when nothing may be evicted
  void evict(std::uint32_t victim, KeyEventKind event);

  // core_why.cpp
  KeyReport why(std::string_view key, std::size_t most_events, std::uint64_t at) const;
  void describe_writes(std::uint32_t first, std::uint64_t at, KeyReport& report) const;
  void describe_published(const Entry& entry, std::uint64_t at, KeyReport& report) const;
  void list_events(std::string_view key, std::size_t most, std::uint64_t at,
                   KeyReport& report) const;
  std::string segment_name(std::uint32_t handle) const;
  std::string client_name(ClientId id) const;

  // core_verify.cpp
  Result<void> verify() const;
  Result<void> verify_entries() const;
  Result<void> verify_candidates(const Candidates& candidates, bool soft) const;
  Result<void> verify_entry(std::uint32_t number, const Entry& entry) const;
  Result<void> verify_segments() const;
  Result<void> verify_resting(std::uint64_t& bytes) const;
  Result<void> verify_open_grants() const;
  Result<void> verify_clients() const;

  const CoreOptions options;
  const std::uint64_t lease_ns;
  Epoch epoch;
  Epoch epoch_limit;
  std::uint64_t epoch_wanted = 0;  // what a mount needed
  std::uint32_t sequence = 0;      // of the last version

  Directory directory;
  SegmentTable segments;
  Placer placer;
  Candidates ordinary;
  Candidates soft_pinned;  // evicted in a second pass
  PinEnds soft_pin_ends;
  std::uint64_t kept_bytes = 0;        // in units, of published objects that are no candidates
  std::vector<std::uint32_t> leaving;  // handles of segments
  OpenGrants open;
  std::deque<Resting> resting;      // the first to end first
  std::uint64_t resting_bytes = 0;  // in units
  // Grants that cost victims and rest, by hash_high of their key.
  std::unordered_map<std::uint64_t, std::size_t> in_vain;
  Clients clients;
  EventRing events;
  Totals totals;
  std::uint64_t now = 0;  // ns, of the command
  std::uint64_t last_tick = 0;
  bool ticked = false;
  bool evicting_round = false;  // a round towards the low mark is under way
  Effects* effects = nullptr;   // of the command
  std::vector<Placer::Chosen> grant_scratch;
  std::vector<Segment*> evict_scratch;
};

}  // namespace mooncake::store::master
