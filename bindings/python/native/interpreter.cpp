#include "native/interpreter.h"

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace mooncake::python {

namespace {

constexpr std::chrono::seconds kPatience{2};

std::atomic<int> away{0};        // threads inside a WithoutGil
std::atomic<int> returning{0};   // those of them that are taking the GIL
std::atomic<bool> ended{false};  // nobody may take it any more
bool ends = false;               // guarded by the GIL

// The other threads are gone in a forked child.
const int at_fork = pthread_atfork(nullptr, nullptr, [] {
  away = 0;
  returning = 0;
});

[[noreturn]] void stay_for_good() {
  for (;;)
    ::pause();
}

void call_side_by_side(std::vector<std::function<void()>> calls) {
  std::vector<std::thread> threads;
  for (const std::function<void()>& call : calls) {
    try {
      threads.emplace_back(call);
    } catch (const std::system_error&) {
      call();
    }
  }
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace

WithoutGil::WithoutGil() : thread_(PyEval_SaveThread()) { away.fetch_add(1); }

WithoutGil::~WithoutGil() {
  // Said before `ended` is read, and read after `ended` is set: one of the two sees the other.
  returning.fetch_add(1);
  if (ended.load()) {
    returning.fetch_sub(1);
    stay_for_good();
  }
  PyEval_RestoreThread(thread_);
  returning.fetch_sub(1);
  away.fetch_sub(1);
}

bool on_main_thread() { return ::gettid() == ::getpid(); }

bool interrupted() {
  if (!on_main_thread()) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return raised;
}

void check_raised() {
  if (PyErr_Occurred() != nullptr) throw nanobind::python_error();
}

bool interpreter_ends() { return ends; }

void end_interpreter(std::vector<std::function<void()>> stores,
                     std::vector<std::function<void()>> engines) {
  ends = true;
  PyThreadState* const thread = PyEval_SaveThread();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  call_side_by_side(std::move(stores));  // they may use the engines
  call_side_by_side(std::move(engines));
  while (away.load() > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (away.load() > 0) {
    ended = true;
    while (returning.load() > 0)
      std::this_thread::yield();
  }
  PyEval_RestoreThread(thread);
}

}  // namespace mooncake::python
