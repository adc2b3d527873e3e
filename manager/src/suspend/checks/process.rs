//! What a process has loaded or works with: MPS, NCCL.

use std::fs;
use std::io;
use std::path::Path;

use vcuda_region::process;

use super::{Check, Places, Resident};

/// Variable by which a process finds the pipes of MPS.
const MPS_PIPES: &[u8] = b"CUDA_MPS_PIPE_DIRECTORY=";
/// Name of MPS's daemon and of its servers, which the kernel cuts to 15 bytes.
const MPS_SERVER: &str = "nvidia-cuda-mps";
/// NCCL in a process's maps.
const NCCL: &[u8] = b"/libnccl.so";
/// Shared memory of NCCL there, by which a rank reaches its peers and its own proxy (`ncclShmOpen`, NCCL's `src/misc/shmutils.cc`).
const NCCL_MEMORY: &[u8] = b" /dev/shm/nccl-";

/// Whether the processes may be clients of MPS.
pub(super) fn mps(places: &Places, processes: &[Resident]) -> Check {
    const REMEDY: &str = "end the MPS daemon, and start the tenant's processes without it";
    for process in processes {
        let variables = match answered(places, process.pid, "environ", process::environment_now) {
            Ok(variables) => variables,
            Err(refused) => return unreadable("MPS", refused),
        };
        let is_client = |variable: &[u8]| {
            let directory = variable.strip_prefix(MPS_PIPES);
            directory.is_some_and(|directory| !directory.is_empty())
        };
        if variables.split(|byte| *byte == 0).any(is_client) {
            let why = format!(
                "process {} uses MPS (CUDA_MPS_PIPE_DIRECTORY is set), of which no checkpoint is known to work",
                process.pid
            );
            return Check::refused("MPS", why, REMEDY);
        }
    }
    match mps_server(&places.procfs) {
        Some(pid) => Check::refused(
            "MPS",
            format!("MPS runs on this node (process {pid}), of whose clients no checkpoint is known to work"),
            REMEDY,
        ),
        None => Check::passed("MPS", "not in use"),
    }
}

/// PID of a daemon or server of MPS.
fn mps_server(procfs: &Path) -> Option<u32> {
    let entries = fs::read_dir(procfs).into_iter().flatten().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let name = fs::read_to_string(procfs.join(format!("{pid}/comm")));
        name.is_ok_and(|name| name.trim_end() == MPS_SERVER)
    })
}

/// Whether ranks of NCCL may be among the processes. One with NCCL's shared memory has peers, of whatever tenant. A process alone
/// on one GPU without it has none in its tenant; frameworks load NCCL without using it.
pub(super) fn nccl(places: &Places, processes: &[Resident], gpus: usize) -> Check {
    const REMEDY: &str = "start it as one process with one GPU, or without NCCL";
    let mut loaded = None;
    for process in processes {
        let maps = match read(places, process.pid, "maps") {
            Ok(maps) => maps,
            Err(refused) => return unreadable("NCCL", refused),
        };
        let has = |word: &[u8]| maps.windows(word.len()).any(|window| window == word);
        if has(NCCL_MEMORY) {
            let why = format!(
                "process {} is a rank of NCCL (it maps /dev/shm/nccl-*): its peers, of whatever tenant, wait while it is locked",
                process.pid
            );
            return Check::refused("NCCL", why, REMEDY);
        }
        if has(NCCL) {
            loaded = Some(process.pid);
        }
    }
    match loaded {
        Some(pid) if processes.len() > 1 || gpus > 1 => Check::refused(
            "NCCL",
            format!(
                "process {pid} has loaded NCCL, and its tenant has several processes or GPUs: locked ranks wait for each other"
            ),
            REMEDY,
        ),
        Some(pid) => Check::passed("NCCL", format!("loaded by process {pid}, alone on one GPU")),
        None => Check::passed("NCCL", "not loaded"),
    }
}

/// A file of a process that cannot be read.
struct Unreadable {
    path: String,
    error: io::Error,
}

/// A file of a process; nothing if the process has ended.
fn read(places: &Places, pid: u32, name: &str) -> Result<Vec<u8>, Unreadable> {
    answered(places, pid, name, |folder| fs::read(folder.join(name)))
}

/// What `ask` finds in the folder of a process, of the file `name`; nothing if the process has ended.
fn answered(
    places: &Places,
    pid: u32,
    name: &str,
    ask: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
) -> Result<Vec<u8>, Unreadable> {
    let folder = places.procfs.join(pid.to_string());
    match ask(&folder) {
        Err(error) if is_gone(&error) => Ok(Vec::new()),
        found => found.map_err(|error| Unreadable { path: folder.join(name).display().to_string(), error }),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

fn unreadable(name: &'static str, Unreadable { path, error }: Unreadable) -> Check {
    Check::refused(
        name,
        format!("{path}: {error}"),
        "give the manager CAP_SYS_PTRACE, which the driver needs, too",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process table of one process with these files.
    fn table(files: &[(&str, &str)]) -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let places = Places { procfs: folder.path().to_owned(), cgroups: folder.path().to_owned() };
        (folder, places)
    }

    const ONE: [Resident; 1] = [Resident { pid: 7, bytes: 1 }];

    fn why(check: Check) -> String {
        check.outcome.unwrap_err().why
    }

    #[test]
    fn clients_and_servers_of_mps_are_found() {
        let (_folder, places) = table(&[("7/environ", "A=1\0CUDA_MPS_PIPE_DIRECTORY=/tmp/mps\0")]);
        assert!(why(mps(&places, &ONE)).contains("process 7 uses MPS"));
        let (_folder, places) = table(&[
            ("7/environ", "XCUDA_MPS_PIPE_DIRECTORY=/a\0CUDA_MPS_PIPE_DIRECTORY=\0"),
            ("9/comm", "nvidia-cuda-mps\n"),
        ]);
        assert!(why(mps(&places, &ONE)).contains("process 9"));
        let (_folder, places) =
            table(&[("7/environ", "A=1\0"), ("9/comm", "nvidia-persiste\n"), ("self/comm", "x")]);
        assert_eq!(mps(&places, &ONE), Check::passed("MPS", "not in use"));
    }

    #[test]
    fn nccl_is_refused_where_it_may_have_peers() {
        let maps = "7f00-7f01 r-xp 0 0 0 /usr/lib/libcuda.so.1\n7f02-7f03 r-xp 0 0 0 /opt/lib/libnccl.so.2\n";
        let (_folder, places) =
            table(&[("7/maps", maps), ("8/maps", "7f00-7f01 r-xp 0 0 0 /usr/lib/libnccl-x.so\n")]);
        let two = [ONE[0], Resident { pid: 8, bytes: 1 }];
        assert!(why(nccl(&places, &two, 1)).contains("process 7 has loaded NCCL"));
        assert!(why(nccl(&places, &ONE, 2)).contains("process 7 has loaded NCCL"));
        assert!(nccl(&places, &ONE, 1).outcome.is_ok());
        assert_eq!(nccl(&places, &two[1..], 2), Check::passed("NCCL", "not loaded"));
    }

    #[test]
    fn a_rank_of_nccl_is_refused_even_if_it_is_alone_in_its_tenant_and_nccl_is_in_the_program() {
        let line = |path| format!("7f00-7f01 rw-s 0 00:1a 9 {path}\n");
        let of = |path| table(&[("7/maps", line(path).as_str())]);
        let (_folder, places) = of("/dev/shm/nccl-Ab12Cd (deleted)");
        assert!(why(nccl(&places, &ONE, 1)).contains("process 7 is a rank of NCCL"));
        let (_folder, places) = of("/data/dev/shm/nccl-Ab12Cd");
        assert_eq!(nccl(&places, &ONE, 1), Check::passed("NCCL", "not loaded"));
    }

    #[test]
    fn a_process_that_has_ended_is_no_reason_and_a_hidden_one_is() {
        let (_folder, places) = table(&[]);
        assert!(mps(&places, &ONE).outcome.is_ok() && nccl(&places, &ONE, 1).outcome.is_ok());
        // A directory cannot be read, whoever asks.
        let (_folder, places) = table(&[("7/maps/x", ""), ("7/environ/x", "")]);
        for check in [mps(&places, &ONE), nccl(&places, &ONE, 1)] {
            assert!(check.outcome.unwrap_err().remedy.contains("CAP_SYS_PTRACE"));
        }
    }
}
