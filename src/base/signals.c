/* signals.c: which signals wait while kernels run.
 *
 * oneDNN's kernels may write below the stack pointer, where a handler on the same stack would put
 * its frame. So what could run a handler there is held off, and what could not is let through: a
 * run can still be stopped.
 */
#include "base/base.h"

#include <pthread.h>

/* All but the signals that a thread's own fault raises: what happens when those come while blocked
 * is undefined (POSIX). */
static void fill_held(sigset_t *held) {
  sigfillset(held);
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
  for (int i = 0; i < NEAP_COUNT(own); i++) sigdelset(held, own[i]);
}

void neap_signals_hold_all(sigset_t *saved) {
  sigset_t held;
  fill_held(&held);
  pthread_sigmask(SIG_BLOCK, &held, saved);
}

/* Whether a signal may come while a kernel runs: nothing is written below the kernel's stack
 * pointer where there is no handler, or where the handler has a stack of its own. */
static bool may_come(int signal_number, bool has_own_stack) {
  struct sigaction action;
  if (sigaction(signal_number, NULL, &action) != 0) return false;
  /* A handler on a stack of its own leaves the kernel's alone. */
  if ((action.sa_flags & SA_ONSTACK) != 0 && has_own_stack) return true;
  return (action.sa_flags & SA_SIGINFO) == 0 &&
         (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN);
}

void neap_signals_hold(sigset_t *saved) {
  static const int usual[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM, SIGXCPU, SIGTSTP};
  sigset_t held;
  fill_held(&held);
  stack_t stack;
  bool has_own_stack = sigaltstack(NULL, &stack) == 0 && (stack.ss_flags & SS_DISABLE) == 0;
  /* All are held, but for the usual ones that may come: a run can still be stopped by them. */
  for (int i = 0; i < NEAP_COUNT(usual); i++)
    if (may_come(usual[i], has_own_stack)) sigdelset(&held, usual[i]);
  pthread_sigmask(SIG_BLOCK, &held, saved);
}

void neap_signals_release(const sigset_t *saved) { pthread_sigmask(SIG_SETMASK, saved, NULL); }
