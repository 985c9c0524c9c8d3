// Signatures of mooncake.engine, as the published package prints them, and what its help() says.
#pragma once

namespace mooncake::python::docs {

#define MC_SELF "self: mooncake.engine.TransferEngine"
#define MC_LISTS                                                                            \
  ", target_hostname: str, buffers: list[int], peer_buffer_addresses: list[int], lengths: " \
  "list[int]"
#define MC_ONE ", target_hostname: str, buffer: int, peer_buffer_address: int, length: int"
#define MC_OPCODE ", opcode: mooncake.engine.TransferOpcode"
#define MC_NOTIFY ", notify: mooncake.engine.TransferNotify = None"
#define MC_HINT ", transport_hint: str = '') -> int"

inline constexpr const char* kEngine =
    R"(One transfer engine: reads and writes between its registered memory and that of peers.

Calls block, let other threads run meanwhile, and may be made from many threads at once. They raise
only for arguments of a wrong type or range (TypeError), and for an unknown transport_hint
(ValueError); every other failure is a negative code, with a line on stderr that says why. When a call
returns, no byte of its buffers is touched any more. Addresses are ints, of this process or of the
peer's; lengths are bytes; both are within 0 and 2^64 - 1, and no bool. Lists of them are sequences of
such ints, or arrays of int64 or uint64 with one dimension (numpy, torch, array.array, ctypes; any
byte order and stride); arrays of other types are refused, since they have lost bits.
In a forked child it is not initialized. Nothing starts before initialize().)";

inline constexpr const char* kInit = "def __init__(" MC_SELF ") -> None";

inline constexpr const char* kInitializeSignature =
    "def initialize(" MC_SELF ", arg0: str, arg1: str, arg2: str, arg3: str) -> int";
inline constexpr const char* kInitialize =
    R"(Opens the engine: initialize(local_hostname, metadata_server, protocol, device_name).

local_hostname   host or host:port, IPv6 with or without brackets. With P2PHANDSHAKE a free port is
                 taken all the same (see get_rpc_port), unless MC_LEGACY_RPC_PORT_BINDING is set
metadata_server  "P2PHANDSHAKE": peers are named "host:port". Or "http://host:port/metadata", where
                 engines publish themselves under host:port of local_hostname
protocol         "", "tcp" and "rdma" choose the best path there is (MC_FORCE_TCP=1: sockets only); a
                 fast network that is missing gives one warning; what needs a device that is not
                 supported, and an unknown name, is refused
device_name      accepted, without effect

A transfer's deadline is MC_TRANSFER_TIMEOUT seconds (at least 5, 30 by default) and a nanosecond
for each byte. A port of its own is one of MC_MIN_RPC_PORT to MC_MAX_RPC_PORT, where these are set.
MC_LOG_LEVEL is TRACE, INFO, WARNING or ERROR. MOONCAKE_CLUSTER_SECRET is what peers must know of each other.
Returns 0, or -1 after one line on stderr that names the field, its value and what is allowed. A
failure leaves nothing behind.
Source: include/mooncake/transfer.h, TransferEngine::create.)";

inline constexpr const char* kInitializeExtSignature =
    "def initialize_ext(" MC_SELF ", arg0: str, arg1: str, arg2: str, arg3: str, arg4: str) -> int";
inline constexpr const char* kInitializeExt =
    R"(The same with the kind of metadata server apart: initialize_ext(local_hostname, metadata_server,
protocol, device_name, metadata_type), where the type is "http" or "P2PHANDSHAKE".
Source: bindings/python/native/engine_setup.cpp.)";

inline constexpr const char* kPortSignature = "def get_rpc_port(" MC_SELF ") -> int";
inline constexpr const char* kPort =
    "The port under which peers find this engine; -1 before initialize().";

inline constexpr const char* kGetEngineSignature =
    "def get_engine(" MC_SELF ") -> mooncake::TransferEngine";
inline constexpr const char* kGetEngine =
    "The native engine, to be shared; it stays open while somebody holds it. None before "
    "initialize().";
inline constexpr const char* kGetEnginePtrSignature = "def get_engine_ptr(" MC_SELF ") -> int";
inline constexpr const char* kGetEnginePtr =
    "Address of the C++ object mooncake::TransferEngine, which lives as long as this one; 0 before "
    "initialize().";

inline constexpr const char* kRegisterSignature =
    "def register_memory(" MC_SELF ", buffer_addr: int, capacity: int, location: str = '*') -> int";
inline constexpr const char* kRegister =
    R"(Lets peers read and write `capacity` bytes from `buffer_addr`, and this engine use them.

Registering a range again, or one that overlaps, succeeds and is counted. `location` ("cpu:0", "*")
is told to peers. The memory must stay mapped until it is unregistered.
Returns 0; -1 for an empty or unmapped range, or before initialize().
Source: include/mooncake/transfer.h, TransferEngine::register_memory.)";

inline constexpr const char* kUnregisterSignature =
    "def unregister_memory(" MC_SELF ", arg0: int) -> int";
inline constexpr const char* kUnregister =
    R"(Takes back the youngest registration that begins at this address.

Returns 0 when no peer touches it any more; -3 when there is none; -2 when a process of this host is
still copying after five seconds: then the memory must stay as it is, until the same call, made again,
has returned 0; -1 for managed memory, which free_managed_buffer() gives back, and before initialize().
Source: include/mooncake/transfer.h, TransferEngine::unregister_memory.)";

inline constexpr const char* kRegisterBatchSignature =
    "def batch_register_memory(" MC_SELF
    ", buffer_addresses: list[int], capacities: list[int], location: str = '*') -> int";
inline constexpr const char* kRegisterBatch =
    R"(register_memory() for many ranges: all, or none and the code of the first that failed.
Lists, or arrays of int64 or uint64 with one dimension; -1 when their lengths differ.)";

inline constexpr const char* kUnregisterBatchSignature =
    "def batch_unregister_memory(" MC_SELF ", arg0: list[int]) -> int";
inline constexpr const char* kUnregisterBatch =
    "unregister_memory() for each address; 0, or the code of the first that failed.";

inline constexpr const char* kAllocateSignature =
    "def allocate_managed_buffer(" MC_SELF ", arg0: int) -> int";
inline constexpr const char* kAllocate =
    R"(Address of a registered buffer of `arg0` bytes, which processes of this host reach with one copy;
0 when there is no room. Classes are 8 KiB * 2^k up to 256 MiB, cut from slabs of 64 MiB to 2 GiB;
what is larger is allocated by itself. A transfer stays within one buffer. Freed with the engine at the
latest.
Source: src/transfer/managed_memory.h.)";

inline constexpr const char* kFreeSignature =
    "def free_managed_buffer(" MC_SELF ", arg0: int, arg1: int) -> int";
inline constexpr const char* kFree =
    R"(Gives a managed buffer back: free_managed_buffer(address, length). Its registration ends at once,
and its bytes are not given out again while a peer is still copying into or out of them. A peer that
begins something new with the address reaches whoever has it then; what register_memory() was called
for within the buffer must be unregistered before. Returns 0, or -1 for what is no such buffer, or was
allocated with a length of another class.)";

inline constexpr const char* kSyncWriteSignature =
    "def transfer_sync_write(" MC_SELF MC_ONE MC_HINT;
inline constexpr const char* kSyncReadSignature = "def transfer_sync_read(" MC_SELF MC_ONE MC_HINT;
inline constexpr const char* kSyncWrite =
    "transfer_sync() with TransferOpcode.Write: from here to the peer.";
inline constexpr const char* kSyncRead =
    "transfer_sync() with TransferOpcode.Read: from the peer to here.";
inline constexpr const char* kSyncSignature =
    "def transfer_sync(" MC_SELF MC_ONE MC_OPCODE MC_NOTIFY MC_HINT;
inline constexpr const char* kSync =
    R"(Moves `length` bytes between `buffer` here and `peer_buffer_address` there, and waits.

target_hostname  the peer's "host:port", or its name at the metadata server; connected at first use
notify           a TransferNotify for the peer's get_notifies(), sent once the bytes are there, also
                 with length 0
transport_hint   a name of the published package, without effect

Returns 0, or -1 when it failed or was not done by its deadline: then a write may have left a part of
its bytes. With this engine as its own target the two ranges may overlap: the bytes end up as memmove
leaves them. Pieces of one batch must not overlap each other where one of them is written.
Source: include/mooncake/transfer.h, TransferEngine::transfer.)";

inline constexpr const char* kBatchWriteSignature =
    "def batch_transfer_sync_write(" MC_SELF MC_LISTS MC_HINT;
inline constexpr const char* kBatchReadSignature =
    "def batch_transfer_sync_read(" MC_SELF MC_LISTS MC_HINT;
inline constexpr const char* kBatchWrite =
    "batch_transfer_sync() with TransferOpcode.Write: from here to the peer.";
inline constexpr const char* kBatchRead =
    "batch_transfer_sync() with TransferOpcode.Read: from the peer to here.";
inline constexpr const char* kBatchSignature =
    "def batch_transfer_sync(" MC_SELF MC_LISTS MC_OPCODE MC_NOTIFY MC_HINT;
inline constexpr const char* kBatch =
    R"(transfer_sync() for many pieces at once, of which there may be any number.

buffers, peer_buffer_addresses, lengths  lists, or arrays of int64 or uint64 with one dimension,
                                         which cost nothing for each item; -1 when they differ in
                                         length

Returns 0 when all pieces are there, else -1.)";

inline constexpr const char* kAsyncWriteSignature =
    "def batch_transfer_async_write(" MC_SELF MC_LISTS MC_HINT;
inline constexpr const char* kAsyncReadSignature =
    "def batch_transfer_async_read(" MC_SELF MC_LISTS MC_HINT;
inline constexpr const char* kAsyncWrite =
    "batch_transfer_async() with TransferOpcode.Write: from here to the peer.";
inline constexpr const char* kAsyncRead =
    "batch_transfer_async() with TransferOpcode.Read: from the peer to here.";
inline constexpr const char* kAsyncSignature =
    "def batch_transfer_async(" MC_SELF MC_LISTS MC_OPCODE MC_HINT;
inline constexpr const char* kAsync =
    R"(Begins what batch_transfer_sync() does, and returns the number of the batch, or 0 when it could not
be begun. Its buffers must stay as they are until it has ended. Every batch must be asked for, with
get_batch_transfer_status() or transfer_check_status(), which free it: at most 65536 are kept.
Source: include/mooncake/transfer.h, TransferEngine::submit.)";

inline constexpr const char* kSubmitWriteSignature =
    "def transfer_submit_write(" MC_SELF MC_ONE MC_HINT;
inline constexpr const char* kSubmitWrite =
    "batch_transfer_async_write() with one piece: the number of the batch, or 0.";

inline constexpr const char* kWaitSignature =
    "def get_batch_transfer_status(" MC_SELF ", arg0: list[int]) -> int";
inline constexpr const char* kWait =
    R"(Waits until all of these batches have ended, which each does by its deadline, and frees them.
Returns 0, or -1 when one has failed, was not done in time, or is unknown.)";

inline constexpr const char* kCheckSignature =
    "def transfer_check_status(" MC_SELF ", arg0: int) -> int";
inline constexpr const char* kCheck =
    R"(Where a batch is, without waiting: 1 done, which means that the last byte is in place; 0 under way;
-1 failed, or unknown; -2 not done by its deadline. 1 and -1 free it, so that it is unknown from then
on.)";

inline constexpr const char* kFirstBufferSignature =
    "def get_first_buffer_address(" MC_SELF ", arg0: str) -> int";
inline constexpr const char* kFirstBuffer =
    "Address of the oldest buffer that a peer has registered; 0 when there is none, or no peer.";

inline constexpr const char* kProbeSignature =
    "def send_probe(" MC_SELF ", peer_server_name: str) -> int";
inline constexpr const char* kProbe =
    R"(0 when the peer answers: then a transfer with it is tried at once, whatever has failed before. Else a
negative code; -1 before initialize().)";

inline constexpr const char* kNotifiesSignature =
    "def get_notifies(" MC_SELF ") -> list[mooncake.engine.TransferNotify]";
inline constexpr const char* kNotifies =
    "What peers have sent since the last call, in the order of arrival.";

inline constexpr const char* kSendNotifySignature =
    "def send_notify(" MC_SELF ", target_hostname: str, name: str, msg: str) -> int";
inline constexpr const char* kSendNotify =
    R"(Sends a note without data, for the peer's get_notifies(). Not in the published package.
Returns 0 once it has arrived, or -1. At most 4 KiB of name and 1 MiB of msg, in UTF-8.
Source: include/mooncake/transfer.h, TransferEngine::notify.)";

inline constexpr const char* kNotify =
    R"(A note to a peer, which goes along with a transfer. Bytes that a peer sent and that aren't UTF-8
are shown as Python does with surrogateescape.)";

inline constexpr const char* kWriteBytesSignature =
    "def write_bytes_to_buffer(" MC_SELF ", arg0: int, arg1: str, arg2: int) -> int";
inline constexpr const char* kWriteBytes =
    R"(Copies into memory of this process: write_bytes_to_buffer(address, source, length), where the
source is bytes, any other buffer, or a str (as UTF-8). Returns 0; -1 when the source is shorter, or
the memory isn't mapped.)";

inline constexpr const char* kReadBytesSignature =
    "def read_bytes_from_buffer(" MC_SELF ", arg0: int, arg1: int) -> bytes";
inline constexpr const char* kReadBytes =
    R"(Copies out of memory of this process: read_bytes_from_buffer(address, length). b"" when it isn't
mapped.)";

inline constexpr const char* kWarmupSignature =
    "def warmup_efa_segment(" MC_SELF ", segment_name: str) -> int";
inline constexpr const char* kWarmup = "Nothing to be warmed up here: always 0.";

#undef MC_SELF
#undef MC_LISTS
#undef MC_ONE
#undef MC_OPCODE
#undef MC_NOTIFY
#undef MC_HINT

}  // namespace mooncake::python::docs
