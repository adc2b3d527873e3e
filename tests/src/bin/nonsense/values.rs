//! Invalid values for arguments by type, and the calls made of them.
//!
//! Tried is everything that the driver can check: null, sizes, counts, flags, ordinals, invalid handles, structures of
//! zeros or ones, impossible addresses. Left out is what it cannot check: other unmapped addresses, callbacks that are no
//! functions, structures of ones that contain addresses, and counts beyond their array. There the real driver may fault,
//! with or without the shim.

use vcuda_driver_api::cuda::{CUmemAllocationType, CUmemLocationType};

use crate::prototypes::{Argument, Prototype};

/// Size of the buffer behind every pointer (bytes), larger than any structure that a function fills.
pub(crate) const ROOM: usize = 8192;

/// Content of a buffer before the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// The same byte repeated.
    Bytes(u8),
    /// These bytes, then zeros.
    Start(Vec<u8>),
}

/// A value to pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number, extended by zeros.
    Number(u128),
    /// Bytes of a structure passed by value.
    Bytes(Vec<u8>),
    /// A valid object of the argument's type (null without a context), plus this number.
    Live(u64),
    /// The address of a buffer.
    Buffer(Content),
    /// The address of a function without effect.
    Callback,
}

/// Values of one call, in the order of its arguments.
pub(crate) type Case = Vec<Value>;

const NULL: Value = Value::Number(0);
const MARK: u8 = 0xa5;

/// Value of an argument that is not under test.
fn usual(argument: &Argument) -> Value {
    if argument.pointee > 0 {
        return buffers(argument).swap_remove(0);
    }
    match argument.type_name {
        "CUstream" | "CUdevice" | "f32" => NULL,
        name if is_callback(name) => Value::Callback,
        name if is_handle(argument) || name == "CUdeviceptr" => Value::Live(0),
        "usize" if is_count(argument) => Value::Number(1),
        "usize" => Value::Number(64),
        name if is_flags(argument.name) || !matches!(name, "c_uint" | "c_int" | "u64") => NULL,
        _ => Value::Number(1),
    }
}

/// Values of an argument under test, while all others are as usual.
fn tried(argument: &Argument) -> Vec<Value> {
    if argument.pointee > 0 {
        let mut values = buffers(argument);
        // Null, and impossible addresses. A real driver may fault there.
        values.extend([0, 16, 1 << 47].map(Value::Number));
        return values;
    }
    let name = argument.type_name;
    if is_callback(name) {
        return vec![NULL, Value::Callback];
    }
    if let Some(structures) = structures(name) {
        return structures.into_iter().map(Value::Bytes).collect();
    }
    let ones = (1_u128 << (8 * argument.size.min(15))) - 1;
    let mut numbers = vec![0, 1, 2, 3];
    if is_handle(argument) || name == "CUdeviceptr" {
        // A number like a host address, one like a device address, a small one.
        numbers.extend([16, 0x7e57_dead_beef_0000_u128, 0x0002_dead_beef_0000, ones]);
    } else if is_count(argument) {
        numbers.push(7);
    } else {
        // -1, 99, the largest and the smallest signed number, single bits.
        numbers.extend([99, 1 << 16, 1 << 21, ones, ones >> 1, (ones >> 1) + 1]);
        if argument.size == 8 {
            numbers.push(1 << 42);
        }
    }
    let mut values: Vec<Value> = numbers.into_iter().map(Value::Number).collect();
    if is_handle(argument) || name == "CUdeviceptr" {
        values.extend([Value::Live(0), Value::Live(1)]);
    }
    if argument.size > 15 {
        values = vec![NULL, Value::Bytes(vec![0xff; argument.size]), Value::Bytes(vec![MARK; argument.size])];
    }
    values
}

/// All calls for a function.
pub(crate) fn cases(prototype: &Prototype) -> Vec<Case> {
    let arguments = prototype.arguments;
    let usual: Case = arguments.iter().map(usual).collect();
    let mut cases: Vec<Case> = vec![
        usual.clone(),
        vec![NULL; arguments.len()],
        // No pointer at all.
        usual
            .iter()
            .zip(arguments)
            .map(|(value, argument)| if argument.pointee > 0 { NULL } else { value.clone() })
            .collect(),
        // Valid pointers, and nothing else.
        usual
            .iter()
            .zip(arguments)
            .map(|(value, argument)| match argument.pointee {
                0 => tried(argument).pop().unwrap_or(NULL),
                _ => value.clone(),
            })
            .collect(),
    ];
    for (at, argument) in arguments.iter().enumerate() {
        for value in tried(argument) {
            let mut case = usual.clone();
            case[at] = value;
            cases.push(case);
        }
    }
    let mut distinct: Vec<Case> = Vec::new();
    for case in cases {
        if !distinct.contains(&case) {
            distinct.push(case);
        }
    }
    distinct
}

/// Contents for a pointer's buffer, the usual one first.
fn buffers(argument: &Argument) -> Vec<Value> {
    let pointee = argument.pointee_name();
    let start = |bytes: Vec<u8>| Value::Buffer(Content::Start(bytes));
    if pointee == "c_char" && !argument.is_written() {
        return vec![
            start(b"vcuda_nothing\0".to_vec()),
            start(b"/nowhere/at/all\0".to_vec()),
            start(b"\0".to_vec()),
        ];
    }
    if let Some(structures) = structures(pointee) {
        return structures.into_iter().map(start).collect();
    }
    let zeros = Value::Buffer(Content::Bytes(0));
    if pointee.starts_with('*') || argument.pointee > 8 && !is_plain(pointee) {
        let mut values = vec![zeros];
        if pointee.starts_with("nvml") {
            // Structures of NVML begin with their size and version.
            values.extend([1_u32, 2, 3].map(|version| {
                let size = u32::try_from(argument.pointee).unwrap();
                start((size | version << 24).to_le_bytes().to_vec())
            }));
        }
        return values;
    }
    let mut values = vec![
        Value::Buffer(Content::Bytes(MARK)),
        zeros,
        Value::Buffer(Content::Bytes(0xff)),
        start(1_u32.to_le_bytes().to_vec()),
    ];
    if !argument.is_written() {
        values.rotate_left(1);
    }
    values
}

/// Structures with a memory location: valid, and wrong in one place.
fn structures(name: &str) -> Option<Vec<Vec<u8>>> {
    let locations = locations();
    let pinned = CUmemAllocationType::PINNED.0.to_le_bytes().to_vec();
    let mut structures: Vec<Vec<u8>> = match name {
        "CUmemLocation" => locations,
        // Type and handle types precede the location.
        "CUmemAllocationProp" | "CUmemPoolProps" => {
            let mut all: Vec<Vec<u8>> =
                locations.iter().map(|location| [&pinned[..], &[0; 4], location].concat()).collect();
            all.push([&[2, 0, 0, 0, 0, 0, 0, 0][..], &locations[0]].concat());
            all.push([&pinned[..], &[0xff; 4], &locations[0]].concat());
            all
        }
        // The location precedes the access.
        "CUmemAccessDesc" => {
            locations.iter().map(|location| [&location[..], &[3, 0, 0, 0]].concat()).collect()
        }
        "CUDA_ARRAY_DESCRIPTOR" => arrays(2),
        "CUDA_ARRAY3D_DESCRIPTOR" => arrays(3),
        _ => return None,
    };
    structures.push(vec![0; 128]);
    structures.push(vec![0xff; 128]);
    Some(structures)
}

/// Memory locations: the first device, then wrong ones and ones of no device.
fn locations() -> Vec<Vec<u8>> {
    let word = |value: i32| value.to_le_bytes();
    let location = |kind: u32, id: i32| [kind.to_le_bytes(), word(id)].concat();
    let device = CUmemLocationType::DEVICE.0;
    let mut locations = vec![location(device, 0)];
    for (kind, id) in [(device, 1), (device, -1), (device, 99), (device, i32::MAX), (0, 0), (u32::MAX, 0)] {
        locations.push(location(kind, id));
    }
    // Host, NUMA node, current NUMA node; what later toolkits add.
    locations.extend((2..8).map(|kind| location(kind, 0)));
    locations
}

/// Descriptions of arrays with so many extents: a right one, then others wrong in one place.
fn arrays(sizes: usize) -> Vec<Vec<u8>> {
    let array = |extents: [u64; 3], format: u32, channels: u32, flags: u32| {
        let extents: Vec<u8> = extents[..sizes].iter().flat_map(|size| size.to_le_bytes()).collect();
        let rest = [format, channels, flags].map(u32::to_le_bytes).concat();
        [extents, rest].concat()
    };
    let mut all = vec![array([64, 64, 0], 1, 1, 0)];
    for extents in [[0; 3], [64, 0, 0], [64, 64, 64], [0, 64, 0], [1 << 40, 1, 1], [u64::MAX; 3]] {
        all.push(array(extents, 1, 1, 0));
    }
    for (format, channels) in [(0, 1), (0x99, 1), (u32::MAX, 1), (1, 0), (1, 3), (1, u32::MAX)] {
        all.push(array([64, 64, 0], format, channels, 0));
    }
    if sizes == 3 {
        all.extend([1, 2, 4, 0x40, 0x80, u32::MAX].map(|flags| array([64, 64, 0], 1, 1, flags)));
    }
    all
}

/// Structures and unions without addresses.
fn is_plain(name: &str) -> bool {
    matches!(
        name,
        "CUuuid"
            | "CUipcMemHandle"
            | "CUipcEventHandle"
            | "CUmemPoolPtrExportData"
            | "CUmulticastObjectProp"
            | "CUexecAffinityParam"
            | "CUarrayMapInfo"
            | "CUDA_ARRAY_MEMORY_REQUIREMENTS"
            | "CUDA_ARRAY_SPARSE_PROPERTIES"
            | "CUDA_ARRAY_DESCRIPTOR_v1"
            | "CUDA_ARRAY3D_DESCRIPTOR_v1"
            | "CUDA_EXTERNAL_MEMORY_BUFFER_DESC"
            | "CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC"
            | "CUgraphExecUpdateResultInfo"
            | "CUdevResource"
    )
}

fn is_callback(name: &str) -> bool {
    matches!(name, "CUhostFn" | "CUstreamCallback" | "CUoccupancyB2DSize" | "CUgraphRecaptureCallback")
}

/// A handle is as wide as an address and has a name of its own.
fn is_handle(argument: &Argument) -> bool {
    argument.size == 8
        && !is_callback(argument.type_name)
        && !matches!(argument.type_name, "usize" | "u64" | "CUmemLocation" | "CUdeviceptr")
}

fn is_flags(name: &str) -> bool {
    name.contains("flags") || name.contains("mode") || name == "option"
}

/// Whether it counts the elements of an array that is an argument too, or the bytes of a copy's.
fn is_count(argument: &Argument) -> bool {
    let name = argument.name;
    (name.starts_with("num_") || name.starts_with("nb_") || matches!(name, "count" | "byte_count"))
        && name != "num_mipmap_levels"
        && name != "num_blocks"
}
