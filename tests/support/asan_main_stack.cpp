// Debian's libsystemc tells AddressSanitizer about every coroutine switch, but gives no bounds for the main stack when
// it returns to it; from then on an exception thrown there leaves the marks of the frames it unwinds, and the next call
// reports an overflow. This definition stands before the sanitizer's in symbol lookup and fills the bounds in.
#if defined(__SANITIZE_ADDRESS__)
#include <dlfcn.h>
#include <pthread.h>

#include <cstddef>

extern "C" void __sanitizer_start_switch_fiber(void** fake_stack_save, const void* bottom, std::size_t size) {
  using Function = void (*)(void**, const void*, std::size_t);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "__sanitizer_start_switch_fiber"));
  if (size == 0) {
    static void* main_bottom = nullptr;
    static std::size_t main_size = 0;
    if (main_size == 0) {
      // Correct on every stack: it asks for the thread's own.
      pthread_attr_t attributes;
      pthread_getattr_np(pthread_self(), &attributes);
      pthread_attr_getstack(&attributes, &main_bottom, &main_size);
      pthread_attr_destroy(&attributes);
    }
    bottom = main_bottom;
    size = main_size;
  }
  next(fake_stack_save, bottom, size);
}
#endif
