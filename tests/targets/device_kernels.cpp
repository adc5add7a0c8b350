// Kernels and copies of planned length on a stream of PyTorch's test backend for accelerators, and their activity for
// torch.profiler.
//
// The backend's streams, events and threads are real. Its operators run on the host, so a job's device work is played:
// a task that lasts as long as it was asked to, by the device's own clock, and takes no core meanwhile. As on CUDA the
// host runs ahead until the launch queue is full. A profiler plugin tells Kineto what ran when, under the names that
// CUDA's runtime has in traces.

#include <sched.h>
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <libkineto.h>
#include <output_base.h>

// What is used of the backend's runtime; only declared, so that its headers need not be installed.
struct orStream;
enum orError_t { orSuccess = 0 };
extern "C" orError_t orStreamCreate(orStream** stream);
extern "C" orError_t orStreamSynchronize(orStream* stream);
namespace openreg {
orError_t addTaskToStream(orStream* stream, std::function<void()> task);
}

namespace {

using libkineto::ActivityType;

// As many launches wait in a CUDA stream before the host has to (measured by many; NVIDIA documents no number).
constexpr int kQueue = 1024;
// A sleep is not shorter than this: the device is let run ahead of the real time by so much.
constexpr int64_t kGrain = 100'000;

struct Record {
  ActivityType type;
  std::string name;
  int64_t start, end;
  int32_t correlation, device, resource;
  int64_t bytes;
};

std::mutex records_lock;
std::vector<Record> records;
std::atomic<bool> recording{false};
std::atomic<int32_t> correlations{0};

orStream* stream = nullptr;
std::mutex queue_lock;
std::condition_variable queue_moves;
int queued = 0;
// When the device is done with what it has begun; touched by its own thread only.
int64_t device_ns = 0;

int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

void sleep_until(int64_t ns) {
  if (ns - now_ns() < kGrain) return;
  timespec time{ns / 1'000'000'000LL, ns % 1'000'000'000LL};
  while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

void keep(Record record) {
  std::lock_guard<std::mutex> guard(records_lock);
  if (recording) records.push_back(std::move(record));
}

// A call of the runtime by the host.
class Call {
 public:
  explicit Call(const char* name) : name_(name), start_(now_ns()), correlation(++correlations) {}
  ~Call() {
    if (recording) {
      keep({ActivityType::CUDA_RUNTIME, name_, start_, now_ns(), correlation, libkineto::processId(),
            libkineto::systemThreadId(), 0});
    }
  }

 private:
  const char* name_;
  int64_t start_;

 public:
  const int32_t correlation;
};

void enqueue(ActivityType type, const char* name, int64_t length, int64_t bytes, int32_t correlation) {
  {
    std::unique_lock<std::mutex> guard(queue_lock);
    queue_moves.wait(guard, [] { return queued < kQueue; });
    ++queued;
  }
  openreg::addTaskToStream(stream, [=, name = std::string(name)] {
    const int64_t now = now_ns();
    const int64_t start = device_ns > now - kGrain ? device_ns : now;
    device_ns = start + length;
    sleep_until(device_ns);
    keep({type, name, start, device_ns, correlation, 0, 7, bytes});
    std::lock_guard<std::mutex> guard(queue_lock);
    --queued;
    queue_moves.notify_all();
  });
}

class Session : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    std::lock_guard<std::mutex> guard(records_lock);
    records.clear();
    recording = true;
  }

  void stop() override {
    recording = false;
  }

  std::vector<std::string> errors() override {
    return {};
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    std::lock_guard<std::mutex> guard(records_lock);
    for (const Record& record : records) {
      buffer_->emplace_activity(buffer_->span, record.type, record.name);
      libkineto::GenericTraceActivity& activity = *buffer_->activities.back();
      activity.startTime = record.start;
      activity.endTime = record.end;
      activity.id = record.correlation;
      activity.device = record.device;
      activity.resource = record.resource;
      activity.addMetadata("correlation", record.correlation);
      if (record.type != ActivityType::CUDA_RUNTIME) {
        activity.addMetadata("device", record.device);
        activity.addMetadata("stream", record.resource);
      }
      if (record.bytes) activity.addMetadata("bytes", record.bytes);
      activity.log(logger);
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return nullptr;
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {};
  }

  // What was logged is read until the trace is written.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

 private:
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

class Profiler : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return name_;
  }

  const std::set<ActivityType>& availableActivities() const override {
    return activities_;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>&,
                                                                 const libkineto::Config&) override {
    return std::make_unique<Session>();
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "played kernels";
  const std::set<ActivityType> activities_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                              ActivityType::CUDA_RUNTIME};
};

} // namespace

// Makes the stream, which the caller makes torch's current one, and lets torch.profiler know of it.
extern "C" void* device_open() {
  orStreamCreate(&stream);
  libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
  return stream;
}

// Asks for a kernel; waits only where the queue is full.
extern "C" void device_launch(const char* name, int64_t length_ns) {
  Call call("cudaLaunchKernel");
  enqueue(ActivityType::CONCURRENT_KERNEL, name, length_ns, 0, call.correlation);
}

// Copies from the host; from pageable memory the call ends when the copy has.
extern "C" void device_copy(int64_t length_ns, int64_t bytes, int pinned) {
  Call call("cudaMemcpyAsync");
  enqueue(ActivityType::GPU_MEMCPY, pinned ? "Memcpy HtoD (Pinned -> Device)" : "Memcpy HtoD (Pageable -> Device)",
          length_ns, bytes, call.correlation);
  if (!pinned) orStreamSynchronize(stream);
}

// Waits for all that was asked.
extern "C" void device_synchronize() {
  Call call("cudaStreamSynchronize");
  orStreamSynchronize(stream);
}
