// TransferEngine: one engine, as Python sees it.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mooncake/transfer.h"
#include "native/engine_setup.h"
#include "native/integers.h"

namespace mooncake::python {

namespace nb = nanobind;

class EngineSession;

// Opaque: what get_engine() gives, for the store and other native code. Keeps the engine open.
class InnerTransferEngine {
 public:
  explicit InnerTransferEngine(std::shared_ptr<EngineSession> session)
      : session_(std::move(session)) {}
  ~InnerTransferEngine();
  InnerTransferEngine(InnerTransferEngine&&) noexcept = default;
  InnerTransferEngine& operator=(InnerTransferEngine&&) = delete;

 private:
  std::shared_ptr<EngineSession> session_;
};

// One transfer, or a batch, as the caller gave it.
struct TransferArguments {
  const std::string& target;
  const IntegerList& buffers;
  const IntegerList& peer_addresses;
  const IntegerList& lengths;
  Opcode opcode;
  const Notification* notification = nullptr;
};

// Any thread, under the GIL, which guards all fields; it is let go of while a call waits. In a
// forked child it is an engine that isn't initialized: what the parent has isn't touched. Failures
// are negative codes, with a line on stderr.
class PythonEngine {
 public:
  PythonEngine();
  ~PythonEngine();
  PythonEngine(const PythonEngine&) = delete;
  PythonEngine& operator=(const PythonEngine&) = delete;

  int initialize(const EngineTexts& given);
  int port() const;
  // Null when there is none that this process may use.
  std::shared_ptr<EngineSession> session() const;

  int register_memory(Word address, Word length, const std::string& location);
  int unregister_memory(Word address);
  int register_batch(const IntegerList& addresses, const IntegerList& lengths,
                     const std::string& location);
  int unregister_batch(const IntegerList& addresses);
  std::uint64_t allocate_buffer(Word length);
  int free_buffer(Word address, Word length);

  int transfer(const TransferArguments& arguments);
  std::uint64_t submit(const TransferArguments& arguments);
  int wait(const IntegerList& batches);
  int check(Word batch);

  int notify(const std::string& target, const Notification& notification);
  std::vector<Notification> take_notifications();
  int probe(const std::string& target);
  std::uint64_t first_buffer(const std::string& target);

  int write_bytes(Word address, nb::handle source, Word length);
  nb::bytes read_bytes(Word address, Word length);

 private:
  // Gives the session up; the caller ends it. A parent's is left alone for good.
  std::shared_ptr<EngineSession> take_session();

  std::shared_ptr<EngineSession> session_;
  pid_t owner_ = 0;  // process that initialized it
  bool initializing_ = false;

  friend std::vector<std::function<void()>> take_all_engines();
};

// Gives up all engines; each function ends one.
std::vector<std::function<void()>> take_all_engines();

}  // namespace mooncake::python
