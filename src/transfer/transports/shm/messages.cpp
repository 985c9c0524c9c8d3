#include "transfer/transports/shm/messages.h"

#include <algorithm>

#include "net/message.h"
#include "transfer/transfer_generated.h"

namespace mooncake::transfer::shm {

net::Bytes encode_open_host() {
  flatbuffers::FlatBufferBuilder builder(32);
  builder.Finish(wire::CreateOpenHostRequest(builder));
  return net::copy_of(builder);
}

net::Bytes encode_invitation(const Invitation& invitation) {
  flatbuffers::FlatBufferBuilder builder(256);
  const auto socket = builder.CreateString(invitation.socket);
  const auto token = builder.CreateVector(invitation.token.data(), invitation.token.size());
  builder.Finish(wire::CreateOpenHostReply(builder, socket, token));
  return net::copy_of(builder);
}

Result<Invitation> decode_invitation(base::ConstBuffer reply) {
  MC_TRY(const auto* const table, net::verified<wire::OpenHostReply>(reply, "OpenHostReply"));
  Invitation invitation;
  if (!table->socket() || net::count_of(table->token()) != invitation.token.size()) {
    return fail(Code::kProtocolError, "OpenHostReply is malformed");
  }
  invitation.socket = table->socket()->str();
  std::copy(table->token()->begin(), table->token()->end(), invitation.token.begin());
  return invitation;
}

}  // namespace mooncake::transfer::shm
