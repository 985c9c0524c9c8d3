// The pages of mooncake_client: how it is, and what it counts.
#pragma once

#include "mooncake/store.h"
#include "net/http.h"

namespace mooncake::client_program {

// /health, /metrics, /metrics/summary. Each asks the store and waits for it, so that `http` needs a
// runtime that is not the store's. The store must outlive the server's stop().
void add_client_pages(net::HttpServer& http, Store& store);

// One line for people, of the text that Store::metrics() gives; empty when there is none.
std::string summary_of(const std::string& metrics);

}  // namespace mooncake::client_program
