//! Calls that the shim does not handle: the driver answers them, the log names the reason once, and `vcuda doctor` reports
//! those by which the process bypasses the shim.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use vcuda_tests::{Fixture, Running, eventually, release_dir, succeeded};

/// Program that reads actions, one word a line, and prints the driver's answer. `past` makes a pool by the driver's own
/// function without a hook, `argv[1]` bytes behind `cuDriverGetVersion`, and destroys it by the hooked one.
const PROGRAM: &str = "
import ctypes, struct, sys
cuda = ctypes.CDLL('libcuda.so.1')
context, pool = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
here = ctypes.cast(cuda.cuDriverGetVersion, ctypes.c_void_p).value
make = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(here + int(sys.argv[1]))
pinned_on_gpu_0 = struct.pack('=iiii72x', 1, 0, 1, 0)
print('ready', flush=True)
for word in sys.stdin:
    if word == 'null\\n':
        status = cuda.cuMemAlloc_v2(None, ctypes.c_size_t(4096))
    elif word == 'wild\\n':
        status = cuda.cuMemPoolDestroy(ctypes.c_void_p(0x1230))
    else:
        assert make(ctypes.byref(pool), pinned_on_gpu_0) == 0
        status = cuda.cuMemPoolDestroy(pool)
    print('answer', status, flush=True)
";

/// Offset of a function in the simulated driver.
fn offset_of(function: &str) -> i64 {
    let library = release_dir().join("libvcuda_simulator_cuda.so");
    let listed = succeeded(&Command::new("nm").arg("-D").arg(library).output().unwrap());
    let line = listed.lines().find(|line| line.ends_with(&format!(" T {function}")));
    i64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap()
}

fn answer(program: &mut Running, word: &str) -> String {
    program.tell(word);
    program.wait_for("answer")
}

fn log_has(log: &Path, words: &str) -> usize {
    std::fs::read_to_string(log).unwrap_or_default().matches(words).count()
}

#[test]
fn the_reasons_are_told() {
    const JUDGED: &str = "an argument is one that the driver judges: the driver alone answered";
    const UNSEEN: &str = "the driver accepted a handle that the shim never saw made";
    let fixture = Fixture::new();
    let log = fixture.runtime().join("log");
    let distance = offset_of("cuMemPoolCreate") - offset_of("cuDriverGetVersion");
    let told_by_doctor = || {
        fixture
            .findings()
            .iter()
            .filter_map(|finding| Some(finding["seen"].as_str()?.split_once("past the shim: ")?.1.to_owned()))
            .collect::<Vec<_>>()
    };
    let start = |command: &mut Command| {
        command.args(["-c", PROGRAM, &distance.to_string()]);
        Running::ready(command, "ready")
    };
    let mut bare = start(&mut fixture.bare("python3"));
    let mut tenant = start(fixture.tenant(&["--memory", "2GiB"], "python3").env("VCUDA_LOG", &log));

    // Wrong arguments get the driver's own answer, and doctor does not report them.
    for word in ["null", "wild", "null"] {
        assert_eq!(answer(&mut tenant, word), answer(&mut bare, word), "{word}");
    }
    eventually("the log names the reason", Duration::from_secs(60), || log_has(&log, JUDGED) > 0);
    assert_eq!(told_by_doctor(), Vec::<String>::new());

    // The shim never saw the pool's creation: some code in this process reaches the driver without it.
    assert_eq!(answer(&mut tenant, "past"), "answer 0");
    eventually("the log names that reason too", Duration::from_secs(60), || log_has(&log, UNSEEN) > 0);
    assert_eq!(told_by_doctor(), [UNSEEN]);
    assert_eq!((log_has(&log, JUDGED), log_has(&log, UNSEEN)), (1, 1), "each is said once");
}
