// StoreSession: what one setup() has opened.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "memory/registry.h"
#include "mooncake/store.h"
#include "native/engine_session.h"
#include "native/setup.h"

namespace mooncake::python {

// Shared by the calls under way, so that none of them sees it go. Any thread, without the GIL.
class StoreSession {
 public:
  // On `shared` when that is given, whose name, metadata server and secret then count; else on an
  // engine of its own.
  static Result<std::shared_ptr<StoreSession>> open(const SetupPlan& plan,
                                                    std::shared_ptr<EngineSession> shared);
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  Store& store() { return *store_; }
  std::uint64_t local_buffer_size() const { return local_buffer_size_; }  // bytes
  std::uint64_t number() const { return number_; }  // of this process's sessions; never 0

  // Registrations end with close(), also those on an engine that goes on.
  Result<void> register_memory(void* address, std::uint64_t length);
  Result<void> unregister_memory(void* address);

  // Registered memory of a call: not given back to its owner before this ends. Empty where the
  // range is not registered, or, when it is `written`, only for reading.
  memory::Use hold(std::uint64_t address, std::uint64_t length, bool written);

  // Ends the store within two seconds; an engine of its own goes with the last of the calls.
  void close();

 private:
  StoreSession() = default;
  TransferEngine& engine() { return shared_ ? shared_->engine() : *own_engine_; }

  std::shared_ptr<EngineSession> shared_;
  std::unique_ptr<TransferEngine> own_engine_;
  std::unique_ptr<Store> store_;  // before its engine in destruction
  std::uint64_t local_buffer_size_ = 0;
  std::uint64_t number_ = 0;

  std::mutex mutex_;
  std::multiset<void*> registered_;  // guarded by mutex_; on a shared engine only
};

}  // namespace mooncake::python
