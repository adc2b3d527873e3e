//! Tests of handlers on a machine in memory, and of those that need no machine.

use crate::{
    accounting, answer, events, identity, limits, links, memory, processes, samples, state, status, system,
    unsupported,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::ptr::null_mut;
use vcuda_driver_api::nvml::*;
use vcuda_driver_api::{NvmlError, names};
use vcuda_machine::{Client, ClockKind, Command, Config, ContextId, Faults, Machine, Xid};

#[test]
fn every_name_is_exported_once() {
    let all: Vec<&str> = [
        accounting::HANDLED,
        events::HANDLED,
        identity::HANDLED,
        limits::HANDLED,
        links::HANDLED,
        memory::HANDLED,
        processes::HANDLED,
        samples::HANDLED,
        state::HANDLED,
        status::HANDLED,
        system::HANDLED,
        unsupported::UNSUPPORTED,
    ]
    .concat();
    let once: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(once.len(), all.len(), "a name stands twice");
    assert_eq!(once.into_iter().collect::<Vec<_>>(), names::NVML_EXPORTS);
}

#[test]
fn addresses_are_read_in_every_form() {
    for text in ["0000:17:00.0", "00000000:17:00.0", "0:17:0", "17:00.0", "00000000:17:00.7"] {
        assert_eq!(identity::pci_address(text), Some((0, 0x17, 0)), "{text}");
    }
    for text in ["", "17", "x:y:z", "1:2:3:4"] {
        assert_eq!(identity::pci_address(text), None, "{text}");
    }
}

#[test]
fn a_uuid_has_sixteen_bytes() {
    let uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
    assert_eq!(identity::uuid_bytes(uuid), Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
    assert_eq!(identity::uuid_bytes("GPU-0001"), None);
}

#[test]
fn text_needs_room_for_its_end() {
    let mut buffer = [0x7f; 4];
    assert_eq!(answer::put_text(buffer.as_mut_ptr(), 3, "abc"), Err(NvmlError::INSUFFICIENT_SIZE));
    assert_eq!(answer::put_text(buffer.as_mut_ptr(), 4, "abc"), Ok(()));
    assert_eq!(buffer, [97, 98, 99, 0]);
    assert_eq!(answer::put_text(std::ptr::null_mut(), 4, "abc"), Err(NvmlError::INVALID_ARGUMENT));
}

#[test]
fn a_short_array_learns_its_size() {
    let (mut array, mut count) = ([0; 2], 1);
    assert_eq!(
        answer::put_all(array.as_mut_ptr(), &raw mut count, &[5, 6]),
        Err(NvmlError::INSUFFICIENT_SIZE)
    );
    assert_eq!((count, array), (2, [0, 0]));
    assert_eq!(answer::put_all(array.as_mut_ptr(), &raw mut count, &[5, 6]), Ok(()));
    assert_eq!(array, [5, 6]);
}

const GIB: u64 = 1 << 30;
const EMPTY: nvmlProcessInfo_t =
    nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };

/// A single test, as NVML has one state per process.
#[test]
fn from_before_init_until_after_shutdown() {
    let mut count = 7;
    assert_eq!(system::device_count(&raw mut count), Err(NvmlError::UNINITIALIZED));
    assert_eq!(state::not_supported(), Err(NvmlError::UNINITIALIZED));
    assert_eq!(state::shutdown(), Err(NvmlError::UNINITIALIZED));

    let config = Config { clock: ClockKind::Virtual, nvlinks: vec![(0, 1)], ..Config::with_gpus(2, 8 * GIB) };
    let machine = Machine::in_memory(config).unwrap();
    let place = std::env::temp_dir().join(format!("vcuda-nvml-{}", std::process::id()));
    std::fs::create_dir(&place).unwrap();
    state::install(machine.clone(), place.clone());
    state::init().unwrap();
    state::init().unwrap();
    system::device_count(&raw mut count).unwrap();
    assert_eq!((count, state::not_supported()), (2, Err(NvmlError::NOT_SUPPORTED)));

    let (mut one, mut other) = (nvmlDevice_t::NULL, nvmlDevice_t::NULL);
    system::handle_by_index(0, &raw mut one).unwrap();
    system::handle_by_index(1, &raw mut other).unwrap();
    assert_eq!(system::handle_by_index(2, &raw mut one), Err(NvmlError::INVALID_ARGUMENT));
    assert_ne!(one, other);
    refused_arguments(one);
    a_process_is_seen(&machine, one, other);
    errors_are_told_once(&machine, &place, one, other);
    one_is_lost(&machine, &place, one, other);

    state::shutdown().unwrap();
    assert_eq!(system::device_count(&raw mut count), Ok(()), "one user is left");
    state::shutdown().unwrap();
    assert_eq!(system::device_count(&raw mut count), Err(NvmlError::UNINITIALIZED));
    the_driver_comes_back_with_one_gpu(&machine, &place);
    std::fs::remove_dir_all(&place).unwrap();
}

fn errors_are_told_once(machine: &Machine, place: &Path, one: nvmlDevice_t, other: nvmlDevice_t) {
    let raised = |xids: &[(usize, u64)]| Faults {
        xids: xids
            .iter()
            .map(|(gpu, xid)| Xid { gpu: machine.config().gpus[*gpu].uuid.clone(), xid: *xid })
            .collect(),
        ..Faults::default()
    };
    raised(&[(0, 13)]).write(place).unwrap();
    let mut set = nvmlEventSet_t::NULL;
    events::create(&raw mut set).unwrap();
    for device in [one, other] {
        events::register(device, nvmlEventTypeXidCriticalError, set).unwrap();
    }
    let mut data = nvmlEventData_t {
        device: nvmlDevice_t::NULL,
        eventType: 0,
        eventData: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let nothing = Err(NvmlError::TIMEOUT);
    assert_eq!(events::wait(set, &raw mut data, 0), nothing, "it was before");
    raised(&[(0, 13), (1, 79), (0, 31)]).write(place).unwrap();
    // After several XIDs at once, NVML knows the devices but only the last number.
    for device in [other, one] {
        events::wait(set, &raw mut data, 1000).unwrap();
        assert_eq!((data.device, data.eventType, data.eventData), (device, 8, 31));
    }
    assert_eq!(events::wait(set, &raw mut data, 0), nothing);
    events::free(set).unwrap();
}

fn one_is_lost(machine: &Machine, place: &Path, one: nvmlDevice_t, other: nvmlDevice_t) {
    let mut link = nvmlGpuP2PStatus_t::OK;
    links::peer_status(one, other, nvmlGpuP2PCapsIndex_t::NVLINK, &raw mut link).unwrap();
    assert_eq!(link, nvmlGpuP2PStatus_t::OK);
    let faults = Faults { lost: vec![machine.config().gpus[1].uuid.clone()], ..Faults::default() };
    faults.write(place).unwrap();
    let (mut count, mut found) = (0, nvmlDevice_t::NULL);
    system::device_count(&raw mut count).unwrap();
    assert_eq!(count, 2, "it is still counted");
    let lost = Err(NvmlError::GPU_IS_LOST);
    assert_eq!(status::none(other, &raw mut count), lost);
    assert_eq!(system::handle_by_index(1, &raw mut found), lost);
    assert_eq!(status::none(one, &raw mut count), Ok(()));
    Faults::default().write(place).unwrap();
    assert_eq!(status::none(other, &raw mut count), Ok(()));
}

fn the_driver_comes_back_with_one_gpu(machine: &Machine, place: &Path) {
    let gone = Faults { driver_gone: true, ..Faults::default() };
    gone.write(place).unwrap();
    assert_eq!(state::init(), Err(NvmlError::DRIVER_NOT_LOADED));
    let back = Faults { absent: vec![machine.config().gpus[0].uuid.clone()], ..Faults::default() };
    back.write(place).unwrap();
    state::init().unwrap();
    let (mut count, mut device, mut minor) = (0, nvmlDevice_t::NULL, 9);
    system::device_count(&raw mut count).unwrap();
    system::handle_by_index(0, &raw mut device).unwrap();
    identity::minor_number(device, &raw mut minor).unwrap();
    assert_eq!((count, minor), (1, 1), "the second is the first now");
    state::shutdown().unwrap();
}

fn refused_arguments(device: nvmlDevice_t) {
    assert_eq!(memory::info(device, null_mut()), Err(NvmlError::INVALID_ARGUMENT));
    assert_eq!(memory::info_v2(device, null_mut()), Err(NvmlError::INVALID_ARGUMENT));
    for handle in [nvmlDevice_t::NULL, nvmlDevice_t(1), nvmlDevice_t(device.0 + 1)] {
        assert_eq!(status::none(handle, &mut 0), Err(NvmlError::INVALID_ARGUMENT));
    }
    let mut memory = nvmlMemory_v2_t { version: nvmlMemory_v2 + 1, total: 9, reserved: 9, free: 9, used: 9 };
    assert_eq!(memory::info_v2(device, &raw mut memory), Err(NvmlError::ARGUMENT_VERSION_MISMATCH));
    assert_eq!(memory.total, 9, "nothing is written to a structure of unknown size");
    let mut set = nvmlEventSet_t::NULL;
    events::create(&raw mut set).unwrap();
    assert_eq!(events::register(device, 1 << 40, set), Err(NvmlError::INVALID_ARGUMENT));
    assert_eq!(events::register(device, 1 << 9, set), Err(NvmlError::NOT_SUPPORTED));
    events::register(device, nvmlEventTypeXidCriticalError, set).unwrap();
    events::free(set).unwrap();
    let (mut count, mut near) = (0, [nvmlDevice_t::NULL; 2]);
    links::nearest(device, nvmlGpuTopologyLevel_t::NODE, &raw mut count, null_mut()).unwrap();
    assert_eq!(count, 1, "a count of 0 asks for the number");
    count = 2;
    links::nearest(device, nvmlGpuTopologyLevel_t::NODE, &raw mut count, near.as_mut_ptr()).unwrap();
    assert_eq!((count, near[0] != device, near[1]), (1, true, nvmlDevice_t::NULL));
    assert_eq!(events::free(set), Err(NvmlError::INVALID_ARGUMENT));
}

fn a_process_is_seen(machine: &Machine, device: nvmlDevice_t, idle: nvmlDevice_t) {
    let client = machine.attach(4711, "tenant").unwrap();
    let context = client.context_create(0).unwrap();
    client.take(0, GIB + 1).unwrap();
    let held = machine.config().context_bytes + GIB + (2 << 20);

    let mut memory = nvmlMemory_v2_t { version: nvmlMemory_v2, total: 0, reserved: 0, free: 0, used: 0 };
    memory::info_v2(device, &raw mut memory).unwrap();
    assert_eq!((memory.total, memory.used), (8 * GIB, held), "in steps of 2 MiB");
    assert_eq!(memory.reserved + memory.free + memory.used, memory.total);

    let (mut count, mut infos) = (0, [EMPTY; 2]);
    assert_eq!(processes::compute_v2(device, &raw mut count, null_mut()), Err(NvmlError::INSUFFICIENT_SIZE));
    assert_eq!(count, 1);
    processes::compute_v2(device, &raw mut count, infos.as_mut_ptr()).unwrap();
    assert_eq!((infos[0].pid, infos[0].usedGpuMemory), (4711, held));
    count = 2;
    processes::compute_v2(idle, &raw mut count, infos.as_mut_ptr()).unwrap();
    assert_eq!(count, 0, "its context is on the other device");
    its_work_is_sampled(machine, &client, context, device);
}

/// The GPU's rate and the samples of processes, before and after process 4711 has launched.
fn its_work_is_sampled(machine: &Machine, client: &Client, context: ContextId, device: nvmlDevice_t) {
    let mut count = 0;
    assert_eq!(samples::of_processes(device, null_mut(), &raw mut count, 0), Err(NvmlError::NOT_FOUND));
    let stream = client.stream_create(context, 0).unwrap();
    client.submit(stream, Command::Kernel { duration_ns: u64::MAX, sms: 1 }).unwrap();
    machine.step_clock(3 * machine.config().sample_ns);
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    samples::rates(device, &raw mut rates).unwrap();
    assert_eq!(rates.gpu, 100);
    let nothing = nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    let mut seen = [nothing; 4];
    assert_eq!(
        samples::of_processes(device, null_mut(), &raw mut count, 0),
        Err(NvmlError::INSUFFICIENT_SIZE)
    );
    count = 4;
    samples::of_processes(device, seen.as_mut_ptr(), &raw mut count, 0).unwrap();
    assert_eq!((count, seen[0].pid, seen[0].smUtil), (1, 4711, 100));
    let again = samples::of_processes(device, seen.as_mut_ptr(), &raw mut count, seen[0].timeStamp);
    assert_eq!(again, Err(NvmlError::NOT_FOUND), "a sample is seen once");
}
