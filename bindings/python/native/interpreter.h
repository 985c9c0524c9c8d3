// The border to the Python interpreter: what waits does so without the GIL, can be interrupted by a
// signal, and doesn't take a process down whose interpreter has ended in the meantime.
#pragma once

#include <Python.h>

#include <functional>
#include <vector>

namespace mooncake::python {

// Lives on the stack around everything that can wait: lets go of the GIL, and takes it again at the
// end. A thread that would come back after the interpreter has ended stays here for good instead:
// CPython would unwind it through frames that can't be unwound, which aborts the process.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

// Whether this is the thread that Python runs signal handlers on.
bool on_main_thread();

// Runs Python's signal handlers, on the main thread only, and inside a WithoutGil. True when one of
// them raised (KeyboardInterrupt): the exception is set, and whoever waits should give up.
bool interrupted();

// Under the GIL: throws what a signal handler raised while a call waited.
void check_raised();

// True once end_interpreter() has begun: nothing new may be set up. Under the GIL.
bool interpreter_ends();

// Run by atexit, under the GIL: calls all of `stores` without it, side by side, then so all of
// `engines`, and then waits for the threads that are inside a WithoutGil; two seconds at most,
// after which they stay there.
void end_interpreter(std::vector<std::function<void()>> stores,
                     std::vector<std::function<void()>> engines);

}  // namespace mooncake::python
