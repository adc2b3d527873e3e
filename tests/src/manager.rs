//! The built `vcuda-manager` on a fixture, in the runtime directory of the fixture's user, so that `vcuda` finds it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::{Fixture, Running, eventually, release_dir};

/// Time limit for a start on a busy machine.
const START: Duration = Duration::from_secs(30);

/// A running manager, killed on drop.
#[derive(Debug)]
pub struct Manager<'b> {
    fixture: &'b Fixture,
    /// Folder of its program.
    release: PathBuf,
    args: Vec<String>,
    variables: Vec<(String, PathBuf)>,
    running: Running,
}

impl Fixture {
    /// Starts a manager and waits until it is ready.
    pub fn manager(&self) -> Manager<'_> {
        self.manager_with(&[])
    }

    /// As [`Fixture::manager`], with further arguments.
    pub fn manager_with(&self, args: &[&str]) -> Manager<'_> {
        self.manager_of(&release_dir(), args)
    }

    /// A manager that writes devices of the simulated driver into the fixture's folder of specifications, with this way of
    /// injection.
    pub fn manager_for_containers(&self, inject: &str) -> Manager<'_> {
        let (root, file) = (self.driver_root(), self.home().join("manager.toml"));
        let table = format!(
            "[cdi]\ninject = \"{inject}\"\ndevices = \"{root}/dev\"\ndriver_root = \"{root}\"\n",
            root = root.display()
        );
        fs::write(&file, table).unwrap();
        let paths = [
            ("--config", file),
            ("--cdi", self.cdi()),
            ("--shim-library", release_dir().join("libvcuda_shim.so")),
            ("--vcuda-program", release_dir().join("vcuda")),
        ];
        let args: Vec<&str> = paths.iter().flat_map(|(flag, path)| [*flag, path.to_str().unwrap()]).collect();
        self.manager_with(&args)
    }

    /// As [`Fixture::manager_with`], with the program of this folder.
    pub fn manager_of(&self, release: &Path, args: &[&str]) -> Manager<'_> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.manager_as(release, args, Vec::new())
    }

    /// As [`Fixture::manager`], with these variables in its environment.
    pub fn manager_under(&self, variables: &[(&str, &Path)]) -> Manager<'_> {
        let own = |(name, value): &(&str, &Path)| ((*name).to_owned(), value.to_path_buf());
        self.manager_as(&release_dir(), Vec::new(), variables.iter().map(own).collect())
    }

    fn manager_as(
        &self,
        release: &Path,
        args: Vec<String>,
        variables: Vec<(String, PathBuf)>,
    ) -> Manager<'_> {
        let running = self.start_manager(release, &args, &variables);
        Manager { fixture: self, release: release.to_owned(), args, variables, running }
    }

    /// A command for `vcuda-manager` on this fixture's directories, with metrics on a free port.
    pub fn manager_command(&self, args: &[String]) -> Command {
        self.manager_command_of(&release_dir(), args)
    }

    /// A manager that this command starts, such as `unshare`: it has the manager's command line behind its own.
    pub fn manager_through(&self, mut launcher: Command) -> Running {
        let manager = self.manager_command(&[]);
        launcher.arg(manager.get_program()).args(manager.get_args());
        launcher.envs(manager.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let running = Running::start(&mut launcher);
        eventually("the manager answers", START, || self.output(["grant", "list"]).status.success());
        running
    }

    fn manager_command_of(&self, release: &Path, args: &[String]) -> Command {
        let mut command = Command::new(release.join("vcuda-manager"));
        self.environment(&mut command);
        command
            .arg("--root")
            .arg(self.runtime().join("vcuda"))
            .arg("--state")
            .arg(self.home.path().join("state"))
            .arg("--nvml-library")
            .arg(release_dir().join("libvcuda_simulator_nvml.so"))
            .arg("--cuda-library")
            .arg(release_dir().join("libvcuda_simulator_cuda.so"))
            .args(["--node", "test-node", "--metrics", "127.0.0.1:0"])
            .env("VCUDA_MANAGER_CDI", "off")
            // Instead of the program beside it, of which each start of a manager would make a copy of 30 MB.
            .env("VCUDA_MANAGER_PROGRAM", "/bin/true")
            .args(args);
        command
    }

    fn manager_log(&self) -> PathBuf {
        self.home.path().join("manager.log")
    }

    fn start_manager(&self, release: &Path, args: &[String], variables: &[(String, PathBuf)]) -> Running {
        let log = File::create(self.manager_log()).unwrap();
        let mut command = self.manager_command_of(release, args);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let running = Running::start(command.stderr(Stdio::from(log)));
        eventually("the manager is ready", START, || {
            let log = fs::read_to_string(self.manager_log()).unwrap();
            // A zombie has no executable.
            let lives = fs::read_link(format!("/proc/{}/exe", running.0.id())).is_ok();
            assert!(lives, "the manager ended: {log}");
            log.lines().any(|line| line.ends_with(" ready"))
        });
        running
    }
}

/// A page of a daemon, with the response head.
pub(crate) fn fetched(address: &str, page: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

impl Manager<'_> {
    /// Its PID.
    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }

    /// Path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.fixture.manager_socket()
    }

    /// Path of its state directory.
    pub fn state(&self) -> PathBuf {
        self.fixture.home.path().join("state")
    }

    /// Log since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.fixture.manager_log()).unwrap()
    }

    /// Address of its metrics, chosen by itself.
    pub fn metrics_address(&self) -> String {
        let log = self.log();
        let found = log.lines().find_map(|line| line.split_once("metrics at http://"));
        let rest = found.unwrap_or_else(|| panic!("no metrics in {log}")).1;
        rest.split('/').next().unwrap().to_owned()
    }

    /// A page of its HTTP server, with the response head.
    pub fn page(&self, page: &str) -> String {
        fetched(&self.metrics_address(), page)
    }

    /// Text of its metrics.
    pub fn metrics(&self) -> String {
        self.page("/metrics")
    }

    /// Value of a series, by name and a part of its labels.
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        let page = self.metrics();
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels))
            .unwrap_or_else(|| panic!("no {name} with {labels} in {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }

    /// Waits for its end.
    pub fn finish(&mut self) -> ExitStatus {
        self.running.finish()
    }

    /// Ends it in order: SIGTERM.
    pub fn end(&mut self) -> ExitStatus {
        self.signal(libc::SIGTERM);
        self.finish()
    }

    /// Kills it with SIGKILL, and waits for its end.
    pub fn kill(&mut self) {
        self.running.kill();
    }

    /// Kills it with SIGKILL and starts it again.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Starts it again after its end.
    pub fn start_again(&mut self) {
        self.running = self.fixture.start_manager(&self.release, &self.args, &self.variables);
    }

    /// As [`Manager::kill_and_restart`], with the program of this folder from then on.
    pub fn change_to(&mut self, release: &Path) {
        release.clone_into(&mut self.release);
        self.kill_and_restart();
    }
}

impl Drop for Manager<'_> {
    /// Shows what it said at the end, if a test fails.
    #[expect(clippy::print_stderr, reason = "for who looks for the cause")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.fixture.manager_log()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the manager's log ends:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}
