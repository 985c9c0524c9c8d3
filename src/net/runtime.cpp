#include "net/runtime.h"

#include "net/reactor.h"
#include "net/socket_network.h"

namespace mooncake::net {
namespace {

class SocketRuntime final : public Runtime {
 public:
  explicit SocketRuntime(std::unique_ptr<Reactor> reactor)
      : reactor_(std::move(reactor)),
        network_(make_socket_network(*reactor_)),
        random_(base::secure_random()) {}

  ~SocketRuntime() override {
    if (reactor_->in_own_process()) return;
    // A forked child shares descriptors and has no thread to join: what it inherited is left alone.
    (void)reactor_.release();
    (void)network_.release();
  }

  os::Env env() override { return {*reactor_, random_, *network_, os::system_disk()}; }

 private:
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<Network> network_;
  base::Random random_;
};

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::start(const std::string& name) {
  MC_TRY(std::unique_ptr<Reactor> reactor, Reactor::start(name));
  return std::make_unique<SocketRuntime>(std::move(reactor));
}

}  // namespace mooncake::net
