#include "transfer/transports/tcp/attempts.h"

#include <algorithm>

#include "transfer/requests.h"

namespace mooncake::transfer::tcp {

Attempts::Ongoing::~Ongoing() {
  if (const auto list = list_.lock()) list->erase(this);
}

void Attempts::Engine::close_batches_below(std::uint64_t batch) {
  if (batch <= oldest_open_batch) return;
  oldest_open_batch = batch;
  fenced.erase(fenced.begin(), fenced.lower_bound({batch, 0}));
  for (Ongoing* const write : *ongoing)
    write->fenced_ |= write->id_.batch < batch;
}

bool Attempts::Engine::is_fenced(Key key, std::uint32_t attempt) const {
  const auto it = fenced.find(key);
  return it != fenced.end() && attempt <= it->second;
}

bool Attempts::Engine::is_fenced(AttemptId id) const {
  return id.batch < oldest_open_batch || is_fenced({id.batch, id.slice}, id.attempt) ||
         is_fenced({id.batch, kWholeBatch}, id.attempt);
}

Result<std::unique_ptr<Attempts::Ongoing>> Attempts::begin(AttemptId id) {
  Engine& engine = engines_[id.engine];
  engine.close_batches_below(id.oldest_open_batch);
  if (engine.is_fenced(id)) return fail(Code::kCancelled, "this attempt has been fenced");
  auto write = std::unique_ptr<Ongoing>(new Ongoing(id));
  write->list_ = engine.ongoing;
  engine.ongoing->insert(write.get());
  return write;
}

Result<std::size_t> Attempts::fence(AttemptId id) {
  Engine& engine = engines_[id.engine];
  engine.close_batches_below(id.oldest_open_batch);
  std::size_t turned_off = 0;
  for (Ongoing* const write : *engine.ongoing) {
    const bool meant = write->id_.batch == id.batch && write->id_.attempt <= id.attempt &&
                       (id.slice == kWholeBatch || write->id_.slice == id.slice);
    turned_off += meant && !write->fenced_;
    write->fenced_ |= meant;
  }
  if (id.batch < engine.oldest_open_batch) return turned_off;  // refused anyway
  const Key key{id.batch, id.slice};
  if (!engine.fenced.contains(key) && engine.fenced.size() >= kMaxFences) {
    return fail(Code::kBusy, "too many fences of batches that are not over");
  }
  auto& up_to = engine.fenced[key];
  up_to = std::max(up_to, id.attempt);
  return turned_off;
}

std::size_t Attempts::fences() const {
  std::size_t count = 0;
  for (const auto& [incarnation, engine] : engines_)
    count += engine.fenced.size();
  return count;
}

}  // namespace mooncake::transfer::tcp
