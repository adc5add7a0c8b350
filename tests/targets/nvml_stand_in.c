/* Stands in for libnvidia-ml.so.1 where there is no GPU: one device with known numbers, laid out as in nvml.h.
   It proves what perfdoctor makes of answers, not what real drivers answer. Process ids come from the environment. */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
typedef unsigned long long u64;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { u64 total, free, used; } memory;
typedef struct { u64 reference_time, violation_time; } violation;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } sample;
typedef struct { unsigned version, supported; } gpm_support;
typedef struct { unsigned id; int result; double value; char *names[3]; } metric;
typedef struct { unsigned version, count; u64 *first, *second; metric metrics[]; } metrics;

static int device_0;
static int has_gpm(void) { return getenv("STAND_IN_GPM") != NULL; }
static int known(void *device) { return device == &device_0 ? OK : 2; }

int nvmlInitWithFlags(unsigned flags) { return flags; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) { return error == NOT_SUPPORTED ? "Not Supported" : "Other"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &device_0; return index ? 2 : OK; }
int nvmlDeviceGetName(void *device, char *name, unsigned n) { strncpy(name, "Stand-in 100", n); return known(device); }
int nvmlSystemGetDriverVersion(char *version, unsigned n) { strncpy(version, "555.42", n); return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12040; return OK; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return known(device); }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next) { return NOT_SUPPORTED; }
int nvmlDeviceGetUtilizationRates(void *device, utilization *use) { use->gpu = 97; use->memory = 40; return known(device); }
int nvmlDeviceGetMemoryInfo(void *device, memory *m) { m->total = 80ull << 30; m->used = 20ull << 30; return known(device); }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 350500; return known(device); }
int nvmlDeviceGetTotalEnergyConsumption(void *device, u64 *millijoules) { *millijoules = 7000; return known(device); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { *milliwatts = 700000; return known(device); }
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz) { *mhz = clock == 1 ? 1410 : 2619; return known(device); }
int nvmlDeviceGetMaxClockInfo(void *device, int clock, unsigned *mhz) { *mhz = clock == 1 ? 1980 : 2619; return known(device); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { *celsius = 61; return known(device); }
/* An older driver: it has the old name of the clock event reasons only. */
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, u64 *reasons) { *reasons = 0x4 | 0x20; return known(device); }
int nvmlDeviceGetViolationStatus(void *device, int policy, violation *v) {
    v->violation_time = policy == 0 ? 2500000000ull : 0;
    return known(device);
}
int nvmlDeviceGetPcieThroughput(void *device, int counter, unsigned *kilobytes) {
    *kilobytes = counter == 0 ? 1000 : 3000;
    return known(device);
}
int nvmlDeviceGetPcieReplayCounter(void *device, unsigned *count) { return NOT_SUPPORTED; }

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process *found) {
    unsigned room = *count;
    *count = 2;
    if (room < 2) return INSUFFICIENT_SIZE;
    found[0] = (process){atoi(getenv("STAND_IN_JOB")), 12ull << 30, 0, 0};
    found[1] = (process){atoi(getenv("STAND_IN_OTHER")), 5ull << 30, 0, 0};
    return known(device);
}
int nvmlDeviceGetProcessUtilization(void *device, sample *found, unsigned *count, u64 since) {
    if (since >= 2000000) return 6; /* not found: nothing new */
    unsigned room = *count;
    *count = 3;
    if (room < 3) return INSUFFICIENT_SIZE;
    found[0] = (sample){atoi(getenv("STAND_IN_JOB")), 1000000, 60, 0, 0, 0};
    found[1] = (sample){atoi(getenv("STAND_IN_JOB")), 2000000, 80, 0, 0, 0};
    found[2] = (sample){atoi(getenv("STAND_IN_OTHER")), 2000000, 25, 0, 0, 0};
    return known(device);
}

int nvmlGpmQueryDeviceSupport(void *device, gpm_support *support) { support->supported = has_gpm(); return known(device); }
int nvmlGpmSampleAlloc(u64 **taken) { *taken = calloc(1, sizeof(u64)); return OK; }
int nvmlGpmSampleFree(u64 *taken) { free(taken); return OK; }
int nvmlGpmSampleGet(void *device, u64 *taken) { static u64 now; *taken = ++now; return known(device); }
int nvmlGpmMetricsGet(metrics *asked) {
    if (asked->version != 1 || *asked->second != *asked->first + 1) return 2;
    for (unsigned i = 0; i < asked->count; i++) {
        asked->metrics[i].value = asked->metrics[i].id; /* percent, or MiB/s */
        asked->metrics[i].result = asked->metrics[i].id == 11 ? NOT_SUPPORTED : OK;
    }
    return OK;
}
