//! A manager on a stage: the built `vcuda-manager` on the stage's own directories.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vcuda_manager_api::SOCKET_NAME;

use super::Stage;
use crate::config::{ENV_MACHINE, ENV_RUNTIME};
use crate::failure::{Failure, failed};
use crate::libraries;
use crate::node::Node;

const PROGRAM: &str = "vcuda-manager";
/// Until it must answer, in steps of [`STEP`].
const STEPS: u32 = 500;
const STEP: Duration = Duration::from_millis(20);

/// A manager that runs. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Manager<'a> {
    stage: &'a Stage,
    program: PathBuf,
    child: Child,
}

impl<'a> Manager<'a> {
    /// Starts it and waits until it answers; nothing if it is not beside this program.
    pub(crate) fn start(stage: &'a Stage) -> Result<Option<Manager<'a>>, Failure> {
        let program = libraries::executable()?.with_file_name(PROGRAM);
        if !program.is_file() {
            return Ok(None);
        }
        let child = spawn(stage, &program)?;
        let mut manager = Manager {
            stage,
            program,
            child,
        };
        manager.wait()?;
        Ok(Some(manager))
    }

    /// Kills it, as the kernel would that has no memory left.
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        self.child
            .kill()
            .and_then(|()| self.child.wait())
            .map_err(failed)?;
        Ok(())
    }

    /// Starts one where the last was killed.
    pub(crate) fn start_again(&mut self) -> Result<(), Failure> {
        self.child = spawn(self.stage, &self.program)?;
        self.wait()
    }

    /// Ends it with SIGTERM. Whether it ended well.
    pub(crate) fn end(mut self) -> Result<bool, Failure> {
        let pid = i32::try_from(self.child.id()).map_err(failed)?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(failed)?;
        for _ in 0..STEPS {
            if let Some(status) = self.child.try_wait().map_err(failed)? {
                return Ok(status.success());
            }
            thread::sleep(STEP);
        }
        Ok(false)
    }

    /// The way to ask it.
    pub(crate) fn node(&self) -> Result<Node, Failure> {
        Node::at_socket(&self.stage.runtime_root().join(SOCKET_NAME))
    }

    /// The page of its metrics.
    pub(crate) fn metrics(&self) -> Result<String, Failure> {
        let log = std::fs::read_to_string(log_file(self.stage)).map_err(failed)?;
        let address = log.lines().rev().find_map(|line| {
            let rest = line.split_once("metrics at http://")?.1;
            rest.split('/').next()
        });
        let address = address.ok_or_else(|| Failure::Failed("the manager names no metrics".to_owned()))?;
        let mut page = String::new();
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .and_then(|()| stream.read_to_string(&mut page))
            .map_err(failed)?;
        Ok(page)
    }

    fn wait(&mut self) -> Result<(), Failure> {
        for _ in 0..STEPS {
            // It listens before all of it is ready; who asks then waits.
            if let Ok(node) = self.node()
                && node.gpus().is_ok_and(|gpus| !gpus.gpus.is_empty())
            {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().map_err(failed)? {
                let log = std::fs::read_to_string(log_file(self.stage)).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default().to_owned();
                return Err(Failure::Failed(format!("the manager ended ({status}): {last}")));
            }
            thread::sleep(STEP);
        }
        Err(Failure::Failed("the manager does not answer".to_owned()))
    }
}

impl Drop for Manager<'_> {
    fn drop(&mut self) {
        // Already gone is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_file(stage: &Stage) -> PathBuf {
    stage.home.path().join("manager.log")
}

fn spawn(stage: &Stage, program: &PathBuf) -> Result<Child, Failure> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(log_file(stage))
        .map_err(failed)?;
    let mut command = Command::new(program);
    command
        .arg("--root")
        .arg(stage.runtime_root())
        .arg("--state")
        .arg(stage.home.path().join("state"))
        .args(["--node", "demo", "--metrics", "127.0.0.1:0"])
        .env(ENV_RUNTIME, stage.home.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    if stage.is_simulated() {
        let links = libraries::simulator(&stage.runtime_root())?;
        command
            .arg("--nvml-library")
            .arg(links.join("libnvidia-ml.so.1"))
            .env(ENV_MACHINE, stage.home.path().join("machine"));
    } else {
        command.env_remove(ENV_MACHINE);
    }
    command
        .spawn()
        .map_err(|error| Failure::access("start", program, &error))
}
