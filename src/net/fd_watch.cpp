#include "net/fd_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstring>
#include <string>

#include "net/asio_access.h"
#include "net/reactor.h"

namespace mooncake::net {
namespace {

class AsioFdWatch final : public FdWatch {
 public:
  AsioFdWatch(Reactor& reactor, int own_fd, std::function<void()> readable)
      : state_(std::make_shared<State>(reactor, own_fd, std::move(readable))) {
    wait(state_);
  }
  ~AsioFdWatch() override {
    state_->ended = true;
    boost::system::error_code ignored;
    state_->descriptor.close(ignored);
  }

 private:
  struct State {
    State(Reactor& reactor_, int fd, std::function<void()> readable_)
        : reactor(reactor_),
          descriptor(*io_context_of(reactor_), fd),
          readable(std::move(readable_)) {}
    Reactor& reactor;
    boost::asio::posix::stream_descriptor descriptor;
    std::function<void()> readable;
    bool ended = false;
  };

  static void wait(const std::shared_ptr<State>& state) {
    state->descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                                 [state](const boost::system::error_code& error) {
                                   Reactor::Turn turn(state->reactor);
                                   if (error || state->ended) return;
                                   state->readable();
                                   if (!state->ended) wait(state);
                                 });
  }

  std::shared_ptr<State> state_;
};

}  // namespace

Result<std::unique_ptr<FdWatch>> FdWatch::start(os::Executor& executor, int fd,
                                                std::function<void()> readable) {
  auto* const reactor = dynamic_cast<Reactor*>(&executor);
  if (reactor == nullptr) return fail(Code::kNotSupported, "this executor has no sockets");
  // A descriptor of its own: the kernel's list forgets one only with its last copy.
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return fail(Code::kSystemCall, std::string("dup: ") + std::strerror(errno));
  try {
    return std::make_unique<AsioFdWatch>(*reactor, own, std::move(readable));
  } catch (const std::exception& e) {
    ::close(own);
    return fail(Code::kSystemCall, std::string("watch a descriptor: ") + e.what());
  }
}

}  // namespace mooncake::net
