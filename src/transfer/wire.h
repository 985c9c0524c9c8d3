// FlatBuffers of the data plane: verified before use, copied out when done.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/buffers.h"
#include "mooncake/result.h"
#include "net/rpc.h"
#include "transfer/transfer_generated.h"

namespace mooncake::transfer {

// The table in `body`, or kProtocolError that names it.
template <typename Table>
Result<const Table*> verified(base::ConstBuffer body, std::string_view what) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(body.data()), body.size());
  if (!verifier.VerifyBuffer<Table>(nullptr)) {
    return fail(Code::kProtocolError, std::string(what) + " is malformed");
  }
  return flatbuffers::GetRoot<Table>(body.data());
}

// Whether a vector of structs with 64-bit members lies as they need it: the verifier looks at the
// place of a vector, but not at the alignment of its elements.
template <typename Vector>
bool is_aligned(const Vector* vector) {
  return !vector || reinterpret_cast<std::uintptr_t>(vector->Data()) % alignof(std::uint64_t) == 0;
}

inline base::ConstBuffer bytes_of(const flatbuffers::FlatBufferBuilder& builder) {
  return {reinterpret_cast<const std::byte*>(builder.GetBufferPointer()), builder.GetSize()};
}
inline net::Bytes copy_of(const flatbuffers::FlatBufferBuilder& builder) {
  const base::ConstBuffer bytes = bytes_of(builder);
  return {bytes.begin(), bytes.end()};
}

}  // namespace mooncake::transfer
