// FlatBuffers of peers: verified before use, copied out when done.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/buffers.h"
#include "mooncake/result.h"
#include "net/rpc.h"

namespace mooncake::net {

// The table in `body`; null when it does not verify.
template <typename Table>
const Table* verified_root(base::ConstBuffer body) {
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(body.data()), body.size());
  return verifier.VerifyBuffer<Table>(nullptr) ? flatbuffers::GetRoot<Table>(body.data()) : nullptr;
}

// The table in `body`, or kProtocolError that names it.
template <typename Table>
Result<const Table*> verified(base::ConstBuffer body, std::string_view what) {
  if (const Table* table = verified_root<Table>(body)) return table;
  return fail(Code::kProtocolError, std::string(what) + " is malformed");
}

// A vector that is left out is an empty one.
template <typename Vector>
std::size_t count_of(const Vector* vector) {
  return vector ? vector->size() : 0;
}

// Whether vectors of 64-bit numbers, or of structs that have some, lie as they need it: the
// verifier looks at the place of a vector, but not at the alignment of its elements.
template <typename... Vectors>
bool are_aligned(const Vectors*... vectors) {
  const auto aligned = [](const auto* vector) {
    return count_of(vector) == 0 ||
           reinterpret_cast<std::uintptr_t>(vector->Data()) % alignof(std::uint64_t) == 0;
  };
  return (aligned(vectors) && ...);
}

inline base::ConstBuffer bytes_of(const flatbuffers::FlatBufferBuilder& builder) {
  return {reinterpret_cast<const std::byte*>(builder.GetBufferPointer()), builder.GetSize()};
}
inline Bytes copy_of(const flatbuffers::FlatBufferBuilder& builder) {
  const base::ConstBuffer bytes = bytes_of(builder);
  return {bytes.begin(), bytes.end()};
}

}  // namespace mooncake::net
