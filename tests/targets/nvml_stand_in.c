/* Stands in for libnvidia-ml.so.1 where there is no GPU: one device with known numbers, laid out as in nvml.h.
   It proves what perfdoctor makes of answers, not what real drivers answer. Process ids come from the environment, and:
   STAND_IN_GPM has performance counters, STAND_IN_MIG is partitioned into one instance, STAND_IN_STALL lets
   the second question for the temperature take so many ms, STAND_IN_SAMPLED is the age of the newest sample in ms,
   STAND_IN_LINKS counts 1 KiB sent and 3 KiB received for each ms since boot,
   STAND_IN_SICK has one of three links down and errors on the others, rows to be remapped, and one Xid error of 74. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7 };
typedef unsigned long long u64;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { u64 total, free, used; } memory;
typedef struct { u64 reference_time, violation_time; } violation;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } sample;
typedef struct { unsigned version, supported; } gpm_support;
typedef struct { unsigned id; int result; double value; char *names[3]; } metric;
typedef struct { unsigned version, count; u64 *first, *second; metric metrics[]; } metrics;

typedef struct { u64 time, value; } use_sample;
typedef struct { unsigned id, scope; long long time, latency; int type, error; u64 value; } field;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } pci;

static int device_0, instance_0;
static int has_gpm(void) { return getenv("STAND_IN_GPM") != NULL; }
static int has_mig(void) { return getenv("STAND_IN_MIG") != NULL; }
static int is_sick(void) { return getenv("STAND_IN_SICK") != NULL; }
static int known(void *device) { return device == &device_0 || device == &instance_0 ? OK : 2; }
static int whole(void *device) { return device == &device_0 ? OK : NOT_SUPPORTED; }

int nvmlInitWithFlags(unsigned flags) { return flags; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) { return error == NOT_SUPPORTED ? "Not Supported" : "Other"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &device_0; return index ? 2 : OK; }
int nvmlDeviceGetName(void *device, char *name, unsigned n) { strncpy(name, "Stand-in 100", n); return known(device); }
int nvmlSystemGetDriverVersion(char *version, unsigned n) { strncpy(version, "555.42", n); return OK; }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = 12040; return OK; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return known(device); }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *next) { *now = *next = 1; return has_mig() ? OK : NOT_SUPPORTED; }
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { *count = 7; return whole(device); }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **instance) { *instance = &instance_0; return index ? 6 : OK; }
int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id) { *id = 5; return device == &instance_0 ? OK : NOT_SUPPORTED; }
int nvmlDeviceGetPciInfo_v3(void *device, pci *info) { strcpy(info->address, "00000000:1A:00.0"); return whole(device); }
int nvmlDeviceGetUtilizationRates(void *device, utilization *use) {
    use->gpu = 97; use->memory = 40;
    return has_mig() ? NOT_SUPPORTED : known(device);
}
int nvmlDeviceGetSamples(void *device, int kind, u64 since, int *type, unsigned *count, use_sample *found) {
    static u64 newest;
    struct timespec now;
    if (kind != 1 || !getenv("STAND_IN_SAMPLED")) return NOT_SUPPORTED;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!found) newest = now.tv_sec * 1000000ull + now.tv_nsec / 1000 - 1000 * atoi(getenv("STAND_IN_SAMPLED"));
    *type = 1; *count = 3;
    for (int i = 0; found && i < 3; i++) found[i] = (use_sample){newest - 200000 * (2 - i), 50};
    return whole(device);
}
int nvmlDeviceGetFieldValues(void *device, int count, field *fields) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (int i = 0; i < count; i++) {
        int known = getenv("STAND_IN_LINKS") && (fields[i].id == 138 || fields[i].id == 139) && fields[i].scope == ~0u;
        fields[i].error = known ? OK : NOT_SUPPORTED;
        fields[i].value = (now.tv_sec * 1000ull + now.tv_nsec / 1000000) * (fields[i].id == 138 ? 1 : 3);
    }
    return whole(device);
}
int nvmlDeviceGetMemoryInfo(void *device, memory *m) {
    m->total = (device == &instance_0 ? 40ull : 80ull) << 30; m->used = 20ull << 30;
    return known(device);
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { *milliwatts = 350500; return whole(device); }
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatts) { *milliwatts = 800000; return whole(device); }
int nvmlDeviceGetTotalEnergyConsumption(void *device, u64 *millijoules) { *millijoules = 7000; return known(device); }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) { *milliwatts = 700000; return known(device); }
int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz) { *mhz = clock == 1 ? 1410 : 2619; return known(device); }
int nvmlDeviceGetMaxClockInfo(void *device, int clock, unsigned *mhz) { *mhz = clock == 1 ? 1980 : 2619; return known(device); }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    static int asked;
    if (asked++ && getenv("STAND_IN_STALL")) usleep(1000 * atoi(getenv("STAND_IN_STALL")));
    *celsius = 61;
    return known(device);
}
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
    if (since >= 3000000) return 6; /* not found: nothing new */
    unsigned room = *count;
    *count = since ? 3 : 1;
    if (room < *count) return INSUFFICIENT_SIZE;
    if (!since) { /* what was before anybody asked */
        found[0] = (sample){atoi(getenv("STAND_IN_OTHER")), 1000000, 99, 0, 0, 0};
        return known(device);
    }
    found[0] = (sample){atoi(getenv("STAND_IN_JOB")), 2000000, 60, 0, 0, 0};
    found[1] = (sample){atoi(getenv("STAND_IN_JOB")), 3000000, 80, 0, 0, 0};
    found[2] = (sample){atoi(getenv("STAND_IN_OTHER")), 3000000, 25, 0, 0, 0};
    return known(device);
}

int nvmlGpmQueryDeviceSupport(void *device, gpm_support *support) { support->supported = has_gpm(); return known(device); }
int nvmlGpmSampleAlloc(u64 **taken) { *taken = calloc(1, sizeof(u64)); return OK; }
int nvmlGpmSampleFree(u64 *taken) { free(taken); return OK; }
int nvmlGpmSampleGet(void *device, u64 *taken) {
    static u64 now;
    *taken = ++now;
    return strcmp(getenv("STAND_IN_GPM"), "forbidden") ? known(device) : NO_PERMISSION;
}
int nvmlGpmMigSampleGet(void *device, unsigned id, u64 *taken) { return id == 5 ? nvmlGpmSampleGet(device, taken) : 2; }
int nvmlGpmMetricsGet(metrics *asked) {
    if (asked->version != 1 || *asked->second != *asked->first + 1) return 2;
    static int pairs;
    int early = !strcmp(getenv("STAND_IN_GPM"), "early") && !pairs++; /* ratios are not available then, and bytes are 0 */
    for (unsigned i = 0; i < asked->count; i++) {
        metric *one = &asked->metrics[i];
        one->value = early ? 0 : one->id; /* percent, or MiB/s */
        one->result = one->id == 11 || (early && one->id < 20) ? NOT_SUPPORTED : OK;
    }
    return OK;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *up) { *up = link != 1; return !is_sick() ? NOT_SUPPORTED : link < 3 ? OK : 2; }
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int kind, u64 *count) { *count = 10 * kind + link; return link == 1 ? 2 : OK; }
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = 2; *uncorrected = 1; *pending = 1; *failed = 0;
    return is_sick() ? OK : NOT_SUPPORTED;
}
typedef struct { void *device; u64 kind, data; unsigned gpu_instance, compute_instance; } event;
int nvmlEventSetCreate(void **set) { *set = &device_0; return OK; }
int nvmlDeviceRegisterEvents(void *device, u64 kinds, void *set) { return kinds == 8 ? OK : 2; }
int nvmlEventSetWait_v2(void *set, event *found, unsigned ms) {
    static int told;
    found->data = 74;
    return is_sick() && !told++ ? OK : 10; /* time out */
}
int nvmlEventSetFree(void *set) { return OK; }
