#include <utility>

#include "transfer/lookup.h"

namespace mooncake::transfer {

namespace {

class P2pLookup final : public SegmentLookup {
 public:
  base::Task<Result<net::Address>> find(std::string name, base::TimePoint,
                                        os::CancelToken*) override {
    auto address = net::parse_address(name, 0);
    if (!address) {
      co_return fail(Code::kSegmentNotFound,
                     "'" + name + "': " + std::string(address.error().detail()));
    }
    if (address->port == 0) {
      co_return fail(Code::kSegmentNotFound, "'" + name + "': nobody is reached at port 0");
    }
    co_return address;
  }
  base::Task<Result<void>> publish(std::string, net::Address, base::TimePoint) override {
    co_return Result<void>();
  }
  base::Task<Result<void>> withdraw(std::string, base::TimePoint) override {
    co_return Result<void>();
  }
};

}  // namespace

std::unique_ptr<SegmentLookup> make_p2p_lookup() { return std::make_unique<P2pLookup>(); }

}  // namespace mooncake::transfer
