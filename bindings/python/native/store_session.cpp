#include "native/store_session.h"

#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transfer/engine.h"

namespace mooncake::python {

namespace {

constexpr std::chrono::milliseconds kPatience{500};  // of close(), for who still copies

}  // namespace

Result<std::shared_ptr<StoreSession>> StoreSession::open(const SetupPlan& plan,
                                                         std::shared_ptr<EngineSession> shared) {
  static std::atomic<std::uint64_t> numbers{0};
  std::shared_ptr<StoreSession> session(new StoreSession);
  session->shared_ = std::move(shared);
  if (session->shared_ == nullptr) {
    TransferOptions transfer;
    transfer.local_name = plan.options.local_name;
    transfer.metadata_server = plan.options.metadata_server;
    transfer.cluster_secret = plan.options.cluster_secret;
    transfer.serve = plan.options.master_server_address != "embedded";
    MC_TRY(session->own_engine_, TransferEngine::create(transfer));
  }
  StoreOptions options = plan.options;
  options.engine = &session->engine();
  MC_TRY(session->store_, Store::create(options));
  session->local_buffer_size_ = plan.local_buffer_size;
  session->number_ = ++numbers;
  return session;
}

Result<void> StoreSession::register_memory(void* address, std::uint64_t length) {
  MC_CHECK(engine().register_memory(address, length));
  if (shared_ == nullptr) return {};
  std::lock_guard lock(mutex_);
  registered_.insert(address);
  return {};
}

Result<void> StoreSession::unregister_memory(void* address) {
  if (shared_ != nullptr) {
    std::lock_guard lock(mutex_);
    if (const auto found = registered_.find(address); found != registered_.end()) {
      registered_.erase(found);
    }
  }
  return engine().unregister_memory(address);
}

void StoreSession::close() {
  store_->close();
  std::vector<void*> left;
  {
    std::lock_guard lock(mutex_);
    left.assign(registered_.begin(), registered_.end());
    registered_.clear();
  }
  if (left.empty()) return;
  Result<void> ended = engine().unregister_memory_batch(left, kPatience);
  if (!ended) base::log_warning("close: {}", ended.error().message());
}

memory::Use StoreSession::hold(std::uint64_t address, std::uint64_t length, bool written) {
  memory::Use use = engine().engine().registry().use(address, length);
  if (use && written && use.region().permission != memory::Permission::kReadWrite) return {};
  return use;
}

}  // namespace mooncake::python
