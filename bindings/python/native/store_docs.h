// Signatures of mooncake.store, as the published package prints them (callers look for names in
// them), and what its help() says.
#pragma once

namespace mooncake::python::docs {

#define MC_SELF "self: mooncake.store.MooncakeDistributedStore"
#define MC_CONFIG \
  ", config: mooncake.store.ReplicateConfig = <mooncake.store.ReplicateConfig object>) -> "
#define MC_BATCH ", keys: list[str], buffer_ptrs: list[int], sizes: list[int]"
#define MC_MANY ", keys: list[str], all_buffer_ptrs: list[list[int]], all_sizes: list[list[int]]"

inline constexpr const char* kStore =
    R"(One client of a store. Calls block, let other threads run meanwhile, and may be made from many
threads at once. In a forked child it is not set up. A failure is a miss within the deadline; when a
call returns, no byte of its buffers is touched any more.

Results are 0 or a number of bytes, or a negative code (section "codes" of include/mooncake/codes.def),
one for each key; when not set up they are all -600. Keys are str (as UTF-8) or bytes, of 1 to 4096
bytes; those of a batch come as a sequence, or as one NumPy array of dtype 'S', whose results are an
array of int64 too. Addresses and lengths are ints of 0 to 2^64 - 1, lists of them sequences of such
ints or arrays of int64 or uint64. Arguments of a wrong type or range raise TypeError.)";

inline constexpr const char* kSetupSignature =
    "def setup(" MC_SELF
    ", local_hostname: str, metadata_server: str, global_segment_size: int, local_buffer_size: int,"
    " protocol: str, rdma_devices: str, master_server_addr: str, engine: object = None,"
    " enable_ssd_offload: bool = False, ssd_offload_path: str = '', tenant_id: str = 'default',"
    " enable_client_http_server: bool = False, client_http_port: int = 9300) -> int";
inline constexpr const char* kSetup =
    R"(Joins a store: gives it a segment of this process's memory, and mounts that at the Master.

local_hostname       host, or host:port to fix the port, of this client's segment
metadata_server      "P2PHANDSHAKE", or "http://host:port/metadata"
global_segment_size  bytes given to the pool; 0 = a pure client; at least 1024 otherwise
local_buffer_size    bytes, bound of a BufferPool; nothing else needs it, since values are read and
                     written where they are; 0 or at least 1024
protocol             "tcp" and "rdma" choose the best path there is; a fast network that is missing
                     gives one warning, a device that is not supported is refused
rdma_devices         accepted, without effect
master_server_addr   "host:port", or "embedded": a Master inside this process, with no ports
engine               a mooncake.engine.TransferEngine that has been initialized, to be shared: its
                     name, metadata server and secret then count, and what is registered with one is
                     so with the other, or, with the store, until its close(). It stays open as long
                     as the store is
enable_ssd_offload, tenant_id, enable_client_http_server
                     refused unless left at their defaults

The cluster's secret is taken from the environment variable MOONCAKE_CLUSTER_SECRET.
Returns 0, or a negative code after one line on stderr that names the field, its value and what is
allowed: -600 for bad arguments, or when it is set up already; -900 or -901 when the Master can't be
reached within five seconds. After close() it may be set up again.
Source: include/mooncake/store.h, Store::create.)";

inline constexpr const char* kSetupDictSignature = "def setup(" MC_SELF ", config: dict) -> int";
inline constexpr const char* kSetupDict =
    R"(The same with a dict. Required: local_hostname and metadata_server. The others have the defaults
global_segment_size and local_buffer_size "16MB", protocol "tcp", master_server_addr
"127.0.0.1:50051". Values are taken as text: sizes may be "16MB" or "16 MB", switches "true" or "no",
None counts as not given. master_server_address and device_name are understood too; cluster_secret
wins over the environment; timeout ("5s") is the deadline of a call. Unknown keys give one warning
that names them.
Source: bindings/python/native/setup.cpp.)";

inline constexpr const char* kInitAllSignature =
    "def init_all(" MC_SELF ", arg0: str, arg1: str, arg2: int) -> int";
inline constexpr const char* kInitAll =
    R"(The shortest setup: init_all(protocol, device_name, mount_segment_size=16777216), on localhost with
P2PHANDSHAKE and the Master at 127.0.0.1:50051. Returns what setup() does.)";

inline constexpr const char* kCloseSignature = "def close(" MC_SELF ") -> int";
inline constexpr const char* kClose =
    R"(Unmounts the segment, whose objects are lost, and ends calls under way. Returns 0, within two seconds
whatever the Master does, and at once when there is nothing to close. After it every call gives -600,
None or b"", until the next setup().
Source: include/mooncake/store.h, Store::close.)";

inline constexpr const char* kHealthSignature = "def health_check(" MC_SELF ") -> int";
inline constexpr const char* kHealth =
    R"(0 healthy, 1 not set up or closed, 2 Master out of reach, as far as the last heartbeat tells.
Source: include/mooncake/store.h, Store::health.)";

inline constexpr const char* kHostnameSignature = "def get_hostname(" MC_SELF ") -> str";
inline constexpr const char* kHostname =
    R"(Name of this client's segment, "host:port"; "" when not set up.)";

inline constexpr const char* kPutSignature =
    "def put(" MC_SELF ", key: str, value: Buffer" MC_CONFIG "int";
inline constexpr const char* kPut =
    R"(Stores a value that nobody changes any more; where the key exists, leaves its value as it is.

value   any object with the buffer protocol whose bytes lie one after the other; sent from where it
        lies, without a copy or a staging buffer
config  how it is kept; None = all defaults

Returns 0, also when the key exists; -600 for an empty value or key, a config that contradicts itself,
or when not set up; -200 without room; -800 or lower when the data or the Master could not be reached
in time. Raises BufferError for a value that is not contiguous.
Source: include/mooncake/store.h, Store::put_batch.)";

inline constexpr const char* kPutPartsSignature =
    "def put_parts(" MC_SELF ", key: str, *args" MC_CONFIG "int";
inline constexpr const char* kPutParts =
    R"(put() of the concatenation of its parts: put_parts(key, *parts, config=...).

Each part is a buffer of bytes with one dimension (RuntimeError otherwise); none is copied.)";

inline constexpr const char* kPutBatchSignature =
    "def put_batch(" MC_SELF ", keys: list[str], values: list[Buffer]" MC_CONFIG "int";
inline constexpr const char* kPutBatch =
    R"(put() of many: 0, or the first code that isn't. The others are stored all the same. -600, with
nothing stored, where there are not as many values as keys.)";

inline constexpr const char* kUpsertSignature =
    "def upsert(" MC_SELF ", key: str, value: Buffer" MC_CONFIG "int";
inline constexpr const char* kUpsert =
    R"(put() that replaces the object where the key exists. Readers find the old value, whole, until the new
one is there, and that from then on; of several upserts the last to end stays.
Source: include/mooncake/store.h, Store::upsert_batch.)";
inline constexpr const char* kUpsertPartsSignature =
    "def upsert_parts(" MC_SELF ", key: str, *args" MC_CONFIG "int";
inline constexpr const char* kUpsertParts = "put_parts() that replaces; see upsert().";
inline constexpr const char* kUpsertBatchSignature =
    "def upsert_batch(" MC_SELF ", keys: list[str], values: list[Buffer]" MC_CONFIG "int";
inline constexpr const char* kUpsertBatch = "put_batch() that replaces; see upsert().";

inline constexpr const char* kGetSignature = "def get(" MC_SELF ", arg0: str) -> bytes";
inline constexpr const char* kGet =
    R"(The value of a key, or b"" when it is missing, can't be read before the deadline, or the store is
not set up. Takes a lease on the object.
Source: include/mooncake/store.h, Store::get.)";

inline constexpr const char* kGetBatchSignature =
    "def get_batch(" MC_SELF ", arg0: list[str]) -> list[bytes]";
inline constexpr const char* kGetBatch =
    R"(The values of many keys, b"" for each that get() would give that for. The Master is asked twice: for
all sizes, then for where the bytes lie.
Source: include/mooncake/store.h, Store::size_batch and get_into_batch.)";

inline constexpr const char* kGetBufferSignature =
    "def get_buffer(" MC_SELF ", arg0: str) -> mooncake.store.BufferHandle";
inline constexpr const char* kGetBuffer =
    R"(The value of a key as a writable buffer, which lives as long as the handle or a view of it does; None
where get() gives b"".)";

inline constexpr const char* kGetPinnedSignature =
    "def get_pinned(" MC_SELF ", key: str) -> mooncake.store.PinnedBuffer | None";
inline constexpr const char* kGetPinned =
    R"(The value of a key where it lies, without a copy, as a buffer that can only be read. Its memory is used
for nothing else until it is released: so release it soon. None on a miss, and where the value can't be
had so, on another host or in memory that this process can't see: then get_buffer() is the way.
Source: include/mooncake/store.h, Store::pin.)";

inline constexpr const char* kGetBuffersSignature =
    "def batch_get_buffer(" MC_SELF ", arg0: list[str]) -> list[mooncake.store.BufferHandle]";
inline constexpr const char* kGetBuffers =
    "get_buffer() of many: None for each that is missing. Asks the Master as get_batch() does.";

inline constexpr const char* kIsExistSignature = "def is_exist(" MC_SELF ", arg0: str) -> int";
inline constexpr const char* kIsExist =
    R"(Whether a key is there: 1; 0, also when the Master is out of reach; or -600 for a bad key, or when not
set up. Takes a lease on the object.
Source: include/mooncake/store.h, Store::exist_batch.)";

inline constexpr const char* kExistBatchSignature =
    "def batch_is_exist(" MC_SELF ", keys: list[str]) -> list[int]";
inline constexpr const char* kExistBatch = "is_exist() of many. No key is copied.";

inline constexpr const char* kSizeSignature = "def get_size(" MC_SELF ", arg0: str) -> int";
inline constexpr const char* kSize =
    R"(Bytes of an object, or a negative code: -704 when it is missing. Takes a lease on the object.
Source: include/mooncake/store.h, Store::size_batch.)";

inline constexpr const char* kRemoveSignature =
    "def remove(" MC_SELF ", key: str, force: bool = False) -> int";
inline constexpr const char* kRemove =
    R"(Removes an object; readers that have begun may still end.

Returns 0; -704 when it is missing; -706 when a reader has a lease and force is false; -703 while it
is being written; -600 for a bad key, or when not set up; -900 or -901 when the Master is out of reach.
Source: include/mooncake/store.h, Store::remove_batch.)";

inline constexpr const char* kRemoveBatchSignature =
    "def batch_remove(" MC_SELF ", keys: list[str], force: bool = False) -> list[int]";
inline constexpr const char* kRemoveBatch = "remove() of many.";

inline constexpr const char* kRemoveRegexSignature =
    "def remove_by_regex(" MC_SELF ", regex_pattern: str, force: bool = False) -> int";
inline constexpr const char* kRemoveRegex =
    R"(Removes all objects whose keys have a match of the pattern anywhere (RE2 syntax); those with a lease
stay unless it is forced, those that are being written stay. A pattern that needs more than 256 steps for a
byte of a key (about one for each character, as often as that is repeated) is a bad one: use several.

Returns their number; -600 for a bad pattern, the empty one included, or when not set up; -900 or -901
when the Master is out of reach: then some may have gone, which one line on stderr says.
Source: include/mooncake/store.h, Store::remove_by_regex.)";
inline constexpr const char* kRemoveAllSignature =
    "def remove_all(" MC_SELF ", force: bool = False) -> int";
inline constexpr const char* kRemoveAll =
    R"(remove_by_regex() of all objects.
Source: include/mooncake/store.h, Store::remove_all.)";

inline constexpr const char* kWhySignature = "def why(" MC_SELF ", key: str) -> dict";
inline constexpr const char* kWhy =
    R"(What became of a key, as far as the Master remembers (the newest 65536 events of all keys by default).
Takes no lease. The dict has:

summary            one sentence, for people
state              "published", "writing" (for the first time) or "absent"; "unknown" when not answered
reason             why a reader misses: "none" (it is there), "never_stored", "forgotten" (no event of
                   it among those remembered), "being_written", "not_published" (its write came to
                   nothing), "evicted", "removed", "lost", "master_unreachable", "unexplained"
events             newest first, at most 32: "event" ("published", "evicted_for_room", ...), "ms_ago",
                   "size" in bytes, "version", "segment", "writer", "soft_pinned"
size, version, segments, soft_pinned, hard_pinned, lease_left_ms    of what is published
open_writes, writer, writing_for_ms                                 of writes under way
more_events, remembered_events, remembered_for_ms, has_forgotten, master_uptime_ms, master_time
                   how far back the answer reaches; master_time in seconds since 1970
code               0, or a negative code when nobody could be asked: then only summary, state, reason,
                   events and code are there
Source: include/mooncake/why.h.)";

#define MC_OUTCOMES                                                                              \
  "A dict for each key: \"outcome\", one of "                                                    \
  "\"stored\", \"already_present\", \"hit\", \"miss\" and \"error\"; \"code\", 0 or a negative " \
  "code;\n"                                                                                      \
  "\"reason\", of a miss one of why()'s reasons, of an error what the code means; and "          \
  "\"detail\", a\n"                                                                              \
  "sentence or \"\". A key that misses because the Master can't be reached is a \"miss\" too.\n"

inline constexpr const char* kPutOutcomesSignature =
    "def batch_put_outcomes(" MC_SELF ", keys: list[str], values: Sequence[Buffer]" MC_CONFIG
    "list[dict]";
inline constexpr const char* kPutOutcomes =
    "put_batch(), item by item: what has been stored now, and what was there already (or is being\n"
    "written by another client) and has been left as it is. ValueError when there are not as many "
    "values\n"
    "as keys.\n" MC_OUTCOMES "Source: include/mooncake/store.h, Store::put_outcomes.";

inline constexpr const char* kGetOutcomesSignature =
    "def batch_get_outcomes(" MC_SELF ", keys: list[str]) -> list[dict]";
inline constexpr const char* kGetOutcomes =
    "get_batch() with reasons: a hit has its value in \"data\". Costs one copy of the values more, "
    "and one\n"
    "more question to the Master when there is a miss.\n" MC_OUTCOMES
    "Source: include/mooncake/store.h, Store::get_outcomes.";

inline constexpr const char* kExistOutcomesSignature =
    "def batch_exist_outcomes(" MC_SELF ", keys: list[str]) -> list[dict]";
inline constexpr const char* kExistOutcomes =
    "batch_is_exist() with reasons: \"hit\" where an object is there.\n" MC_OUTCOMES
    "Source: include/mooncake/store.h, Store::exist_outcomes.";

inline constexpr const char* kReplicasSignature =
    "def get_replica_desc(" MC_SELF ", key: str) -> list[mooncake.store.ReplicaDescriptor]";
inline constexpr const char* kReplicas =
    R"(Where the copies of an object lie; [] when it is missing, the Master is out of reach, or the store is
not set up. Takes a lease on the object.
Source: include/mooncake/store.h, Store::replicas_batch.)";
inline constexpr const char* kReplicasBatchSignature =
    "def batch_get_replica_desc(" MC_SELF
    ", keys: list[str]) -> dict[str, list[mooncake.store.ReplicaDescriptor]]";
inline constexpr const char* kReplicasBatch =
    "get_replica_desc() of many, by key; those for which that gives [] are left out.";

inline constexpr const char* kRegisterSignature =
    "def register_buffer(" MC_SELF ", buffer_ptr: int, size: int) -> int";
inline constexpr const char* kRegister =
    R"(Lets the calls with addresses use `size` bytes from `buffer_ptr`. Registering a range again, or one
that overlaps, succeeds and is counted. The memory must stay mapped until it is unregistered, or until
close().
Returns 0; -600 for an empty or unmapped range, or when not set up.
Source: include/mooncake/transfer.h, TransferEngine::register_memory.)";

inline constexpr const char* kUnregisterSignature =
    "def unregister_buffer(" MC_SELF ", buffer_ptr: int) -> int";
inline constexpr const char* kUnregister =
    R"(Takes back the youngest registration that begins at this address, after the calls that use it.
Returns 0; -800 when there is none; -900 when it is still in use after five seconds: then the memory
must stay as it is; -600 when not set up.
Source: include/mooncake/transfer.h, TransferEngine::unregister_memory.)";

inline constexpr const char* kPutFromSignature =
    "def put_from(" MC_SELF ", key: str, buffer_ptr: int, size: int" MC_CONFIG "int";
inline constexpr const char* kPutFrom =
    R"(put() of `size` bytes of registered memory. Returns what put() does; 0, with nothing stored, when size
is 0; -800 where the range is not registered.)";

inline constexpr const char* kPutFromMetadataSignature =
    "def put_from_with_metadata(" MC_SELF
    ", key: str, buffer_ptr: int, metadata_buffer_ptr: int, size: int, metadata_size: int" MC_CONFIG
    "int";
inline constexpr const char* kPutFromMetadata =
    R"(put() of two ranges of registered memory: the object is the metadata, followed by the data.

Returns 0, also when the key exists; -1 for bad arguments (a range that is not registered, nothing to
store, a config that is refused); the code of a put that failed as a positive number (200 without
room), as the published package has it; -600 when not set up.)";

inline constexpr const char* kPutBatchFromSignature =
    "def batch_put_from(" MC_SELF MC_BATCH MC_CONFIG "list[int]";
inline constexpr const char* kPutBatchFrom =
    "put_from() of many; -600 for each where the lists are not of one length.";
inline constexpr const char* kUpsertFromSignature =
    "def upsert_from(" MC_SELF ", key: str, buffer_ptr: int, size: int" MC_CONFIG "int";
inline constexpr const char* kUpsertFrom = "put_from() that replaces; see upsert().";
inline constexpr const char* kUpsertBatchFromSignature =
    "def batch_upsert_from(" MC_SELF MC_BATCH MC_CONFIG "list[int]";
inline constexpr const char* kUpsertBatchFrom = "batch_put_from() that replaces; see upsert().";

inline constexpr const char* kPutManySignature =
    "def batch_put_from_multi_buffers(" MC_SELF MC_MANY MC_CONFIG "list[int]";
inline constexpr const char* kPutMany =
    R"(batch_put_from() of objects that are each the concatenation of several ranges. The config may have
prefer_alloc_in_same_node.)";

inline constexpr const char* kGetIntoSignature =
    "def get_into(" MC_SELF ", key: str, buffer_ptr: int, size: int) -> int";
inline constexpr const char* kGetInto =
    R"(Reads an object to `buffer_ptr`, in registered memory with room for `size` bytes. Takes a lease.

Returns the bytes read; -704 when it is missing; -600 when it is larger than `size`, or when not set
up; -800 where the range is not registered, or the data can't be read in time. After an error the
memory may hold anything.
Source: include/mooncake/store.h, Store::get_into_batch.)";

inline constexpr const char* kGetBatchIntoSignature =
    "def batch_get_into(" MC_SELF MC_BATCH ") -> list[int]";
inline constexpr const char* kGetBatchInto =
    "get_into() of many; -600 for each where the lists are not of one length.";

inline constexpr const char* kGetManySignature =
    "def batch_get_into_multi_buffers(" MC_SELF MC_MANY
    ", prefer_alloc_in_same_node: bool = False) -> list[int]";
inline constexpr const char* kGetMany =
    R"(batch_get_into() of objects that are each scattered over several ranges, filled one after the other.
prefer_alloc_in_same_node has no effect: the nearest copy is read anyway.)";

#undef MC_SELF
#undef MC_CONFIG
#undef MC_BATCH
#undef MC_MANY

}  // namespace mooncake::python::docs
