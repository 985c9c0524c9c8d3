// Streams that are sockets.
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <string>
#include <utility>

#include "net/asio_access.h"
#include "net/byte_stream.h"
#include "net/socket_network.h"
#include "net/stream_channel.h"

namespace mooncake::net {
namespace {

using boost::system::error_code;
using Socket = boost::asio::generic::stream_protocol::socket;

class SocketStream final : public ByteStream {
 public:
  SocketStream(Reactor& reactor, int fd, int family)
      : reactor_(reactor),
        socket_(*io_context_of(reactor), boost::asio::generic::stream_protocol(family, 0), fd) {}

  void receive_some(std::span<std::byte> to, Filled done) override {
    socket_.async_read_some(
        boost::asio::buffer(to.data(), to.size()),
        [&reactor = reactor_, done = std::move(done)](const error_code& error, std::size_t size) {
          Reactor::Turn turn(reactor);
          done(error == boost::asio::error::eof ? 0 : error.value(), error ? 0 : size);
        });
  }
  std::size_t receive_now(std::span<std::byte>) override { return 0; }

  bool places_bytes() const override { return true; }
  ssize_t receive(msghdr& message) override {
    return ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT);
  }
  void when_readable(Ready done) override { wait(Socket::wait_read, std::move(done)); }

  ssize_t send(Pieces& pieces) override {
    const msghdr message = pieces.message();
    return ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void when_writable(Ready done) override { wait(Socket::wait_write, std::move(done)); }

  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void wait(Socket::wait_type what, Ready done) {
    socket_.async_wait(what,
                       [&reactor = reactor_, done = std::move(done)](const error_code& error) {
                         Reactor::Turn turn(reactor);
                         done(error.value(), static_cast<bool>(error));
                       });
  }

  Reactor& reactor_;
  Socket socket_;
};

}  // namespace

Result<std::unique_ptr<Channel>> make_socket_channel(Reactor& reactor, int fd, int family,
                                                     PeerInfo peer) {
  std::unique_ptr<ByteStream> stream;
  try {
    stream = std::make_unique<SocketStream>(reactor, fd, family);
  } catch (const std::exception& e) {
    ::close(fd);
    return fail(Code::kSystemCall, std::string("socket: ") + e.what());
  }
  return make_stream_channel(reactor, std::move(stream), std::move(peer));
}

}  // namespace mooncake::net
