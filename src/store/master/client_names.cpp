#include "store/master/client_names.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>
#include <cstring>

#include "base/random.h"

namespace mooncake::store::master {

ClientNames::ClientNames() { base::secure_random(key_); }

std::uint64_t ClientNames::of(ClientId client) const {
  std::array<unsigned char, 32> digest{};
  unsigned int size = digest.size();
  if (::HMAC(::EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
             reinterpret_cast<const unsigned char*>(&client), sizeof(client), digest.data(),
             &size) == nullptr) {
    std::abort();  // no SHA-256 in this process
  }
  std::uint64_t name = 0;
  std::memcpy(&name, digest.data(), sizeof(name));
  return name;
}

}  // namespace mooncake::store::master
