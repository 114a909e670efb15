// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>

#include "headrace/proc/spawn_internal.h"

extern char** environ;

#if defined(__SANITIZE_THREAD__)
// The C library's other names for what the thread sanitizer catches. It takes clone() for a fork
// and then ignores the locks of the calling thread, and it books what the new process does to its
// descriptors and handlers as done to ours: the two share their memory until the exec.
extern "C" int __clone(int (*entry)(void*), void* stack, int flags, void* argument, ...);
extern "C" int __dup2(int from, int to);
extern "C" int __sigaction(int number, const struct sigaction* next, struct sigaction* old);
#endif

namespace headrace::proc {

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr auto& real_clone = ::__clone;
constexpr auto& real_dup2 = ::__dup2;
constexpr auto& real_sigaction = ::__sigaction;
#else
constexpr auto& real_clone = ::clone;
constexpr auto& real_dup2 = ::dup2;
constexpr auto& real_sigaction = ::sigaction;
#endif

enum class Step : uint8_t { none, parent, limits, priority, cores, folder, descriptors, exec };

/// What the new process reads and writes in our memory while we wait for its exec (CLONE_VFORK).
struct Launch {
  const char* program = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;
  std::vector<std::pair<int, int>>* fds = nullptr;
  const std::vector<ResourceLimit>* limits = nullptr;
  int nice = 0;
  const std::vector<unsigned long>* cores = nullptr;
  bool die_with_parent = true;
  GroupNotice* notice = nullptr;
  pid_t parent = -1;
  sigset_t signals = {};  // mask to restore
  Step failed = Step::none;
  int error_number = 0;
};

/// Give back what handlers of ours caught: their code must not run in the child.
void reset_signals() {
  struct sigaction normal = {};
  normal.sa_handler = SIG_DFL;
  for (int number = 1; number < _NSIG; ++number) {
    struct sigaction now = {};
    if (real_sigaction(number, nullptr, &now) == 0 &&
        (now.sa_handler != SIG_IGN || number == SIGPIPE || number == SIGCHLD)) {
      real_sigaction(number, &normal, nullptr);
    }
  }
}

/// Copies above every wanted number first, so that no dup2 hits a descriptor still needed.
bool place_descriptors(std::vector<std::pair<int, int>>& fds) {
  int above = 3;
  for (const auto& [ours, wanted] : fds) {
    above = std::max(above, wanted + 1);
  }
  for (auto& [ours, wanted] : fds) {
    ours = ::fcntl(ours, F_DUPFD_CLOEXEC, above);
    if (ours < 0) {
      return false;
    }
  }
  for (const auto& [ours, wanted] : fds) {
    if (real_dup2(ours, wanted) < 0) {
      return false;
    }
  }
  return true;
}

Step set_up(Launch& launch) {
  ::setpgid(0, 0);
  if (launch.notice != nullptr) {
    // In this order, and whoever calls it off in the other: one of the two sees the other.
    launch.notice->group.store(::getpid());
    if (launch.notice->called_off.load()) {
      return Step::parent;
    }
  }
  if (launch.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launch.parent) {
      return Step::parent;
    }
  }
  for (const ResourceLimit& limit : *launch.limits) {
    const rlimit value = {.rlim_cur = limit.value, .rlim_max = limit.value};
    if (::syscall(SYS_prlimit64, 0, limit.resource, &value, nullptr) != 0) {
      return Step::limits;
    }
  }
  if (launch.nice != 0) {
    errno = 0;
    if (::nice(launch.nice) == -1 && errno != 0) {
      return Step::priority;
    }
  }
  if (!launch.cores->empty() &&
      ::syscall(SYS_sched_setaffinity, 0, launch.cores->size() * sizeof(unsigned long),
                launch.cores->data()) != 0) {
    return Step::cores;
  }
  if (launch.folder != nullptr && ::chdir(launch.folder) != 0) {
    return Step::folder;
  }
  // Other libraries' descriptors may lack close-on-exec. Kernels before 5.11 refuse; then they
  // stay.
  ::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  if (!place_descriptors(*launch.fds)) {
    return Step::descriptors;
  }
  return Step::none;
}

/// First function of the new process. Its memory is ours and we stand still: no allocation, no
/// lock, nothing but system calls.
int child_main(void* argument) {
  Launch& launch = *static_cast<Launch*>(argument);
  reset_signals();
  launch.failed = set_up(launch);
  if (launch.failed == Step::none) {
    ::sigprocmask(SIG_SETMASK, &launch.signals, nullptr);
    ::execve(launch.program, launch.argv, launch.environment);
    launch.failed = Step::exec;
  }
  launch.error_number = errno;
  ::_exit(127);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    out.push_back(const_cast<char*>(text.c_str()));  // execve does not write to them
  }
  out.push_back(nullptr);
  return out;
}

Error launch_error(const Launch& launch, const SpawnPlan& plan) {
  const std::string what = "starting " + plan.program;
  switch (launch.failed) {
    case Step::parent: return Error{Errc::cancelled, what + ": this process is ending"};
    case Step::limits: return errno_error(launch.error_number, what + ": setting resource limits");
    case Step::priority: return errno_error(launch.error_number, what + ": setting the priority");
    case Step::cores: return errno_error(launch.error_number, what + ": choosing its cores");
    case Step::folder: return errno_error(launch.error_number, what + " in folder " + plan.folder);
    case Step::descriptors:
      return errno_error(launch.error_number, what + ": handing over descriptors");
    case Step::exec:
      if (launch.error_number == ENOEXEC) {
        return Error{Errc::invalid_argument,
                     what +
                         ": it is no program for this machine and no script with #! on its "
                         "first line"};
      }
      return errno_error(launch.error_number, what);
    case Step::none: break;
  }
  return Error{Errc::internal, what + ": the new process ended before its exec"};
}

}  // namespace

Result<Spawned> spawn_process(const SpawnPlan& plan) {
  constexpr size_t kStackBytes = size_t{256} << 10;
  std::vector<std::pair<int, int>> fds = plan.fds;
  const std::vector<char*> argv = pointers(plan.argv);
  const std::vector<char*> environment = pointers(plan.environment);
  Launch launch;
  launch.program = plan.program.c_str();
  launch.argv = argv.data();
  launch.environment = environment.data();
  launch.folder = plan.folder.empty() ? nullptr : plan.folder.c_str();
  launch.fds = &fds;
  launch.limits = &plan.limits;
  launch.nice = plan.nice;
  launch.cores = &plan.cores;
  launch.die_with_parent = plan.die_with_parent;
  launch.notice = plan.notice;
  launch.parent = ::getpid();

  void* stack = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) {
    return errno_error(errno, "making a stack to start " + plan.program);
  }
  // No handler of ours may run in the child while it shares our memory.
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &launch.signals);
  int pidfd = -1;
  const int pid = real_clone(child_main, static_cast<char*>(stack) + kStackBytes,
                             CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &launch, &pidfd);
  const int clone_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &launch.signals, nullptr);
  ::munmap(stack, kStackBytes);
  if (pid < 0) {
    return errno_error(clone_error, "starting " + plan.program +
                                        ": the system makes no process (limit of processes, or a "
                                        "kernel before 5.4)");
  }
  Spawned spawned{.pid = pid, .pidfd = base::Fd(pidfd)};
  if (launch.failed != Step::none) {
    siginfo_t ignored = {};
    if (plan.notice != nullptr) {
      plan.notice->group.store(0);  // before its number is free for others
    }
    ::waitid(P_PID, static_cast<id_t>(pid), &ignored, WEXITED);  // it has called _exit
    return launch_error(launch, plan);
  }
  return spawned;
}

std::vector<std::string> child_environment(const ChildOptions& options) {
  std::map<std::string, std::string> variables;
  if (!options.empty_environment) {
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const size_t equals = text.find('=', 1);
      if (equals != std::string::npos) {
        variables[text.substr(0, equals)] = text.substr(equals + 1);
      }
    }
  }
  if (options.threads > 0) {
    for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
                             "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"}) {
      variables[name] = std::to_string(options.threads);
    }
  }
  for (const std::string& name : options.environment_removed) {
    variables.erase(name);
  }
  for (const auto& [name, value] : options.environment) {
    variables[name] = value;
  }
  std::vector<std::string> out;
  out.reserve(variables.size());
  for (const auto& [name, value] : variables) {
    out.push_back(name + "=" + value);
  }
  return out;
}

std::vector<unsigned long> core_mask(const std::vector<int>& cores) {
  constexpr size_t kBits = sizeof(unsigned long) * 8;
  std::vector<unsigned long> mask;
  for (const int core : cores) {
    const auto at = static_cast<size_t>(std::max(core, 0));
    mask.resize(std::max(mask.size(), at / kBits + 1));
    mask[at / kBits] |= 1UL << (at % kBits);
  }
  return mask;
}

Result<std::string> find_program(const std::string& name,
                                 const std::vector<std::string>& environment) {
  if (name.find('/') != std::string::npos) {
    return name;
  }
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : environment) {
    if (variable.rfind("PATH=", 0) == 0) {
      path = variable.substr(5);
    }
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    struct stat info = {};
    if (::stat(candidate.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
        ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    begin = end + 1;
  }
  return Error{Errc::not_found, "no program \"" + name + "\" in PATH (" + path + ")"};
}

}  // namespace headrace::proc
